"""Links to all other nodes: the quorum's transport, the way to the controller, and the entry for new nodes."""

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

import msgspec

from millstream.broker.peers.admission import Admission
from millstream.broker.peers.contact import Contact
from millstream.broker.peers.founding import KnownCluster
from millstream.broker.peers.hello import Hello, Welcome, answer
from millstream.broker.peers.link import LONGEST_PAUSE, PeerLink
from millstream.broker.server.listener import WILDCARDS
from millstream.cluster.founding_messages import AskPromise, PromiseAnswer, decode_answer, encode
from millstream.cluster.metadata.image import BrokerImage, MetadataImage
from millstream.cluster.metadata.machine import Records
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.raft.codec import BadMessage
from millstream.cluster.raft.envelope import Assembler
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.messages import InstallSnapshot, Message
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.protocol.api import PEER_COMMAND, PEER_FOUNDING
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.wire import MalformedRequest
from millstream.runtime.clock import CautiousTime
from millstream.runtime.sometimes import sometimes

log = get_logger("millstream.peers")

_COMMAND_SECONDS = 30.0
_PROMISE_SECONDS = 2.0


class PeerNetwork:
    """Links to the seeds from the start, and to every broker that the metadata names."""

    def __init__(
        self,
        me: MemberKey,
        members: tuple[MemberKey, ...],
        seeds: tuple[str, ...],
        time: CautiousTime,
        address: str = "",
        *,
        elapsed: Callable[[], float],
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        """`elapsed` is the clock for leases; `longest_pause` is the longest between two attempts to connect."""
        self.me = me
        self._elapsed = elapsed
        self._longest_pause = longest_pause
        self.seeds = seeds
        self._time = time
        self._address = address
        self.answers: dict[str, Welcome] = {}
        """By address, the newest answer."""
        self.refusal: str | None = None
        """Why another node refuses this one."""
        self.was_refused = asyncio.Event()
        self.on_removed: Callable[[str], None] = lambda _reason: None
        """Called when the cluster has removed this node, perhaps while it was down."""
        self.known: KnownCluster | None = None
        """A cluster that another node reported while this one belonged to none; kept while the node runs."""
        self.promised_founder: Callable[[], MemberKey | None] = lambda: None
        self._stored_members = members
        self._adopted_cluster_id = ""
        self._links: dict[str, PeerLink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._assemblers: WeakKeyDictionary[object, Assembler] = WeakKeyDictionary()
        self._metadata: MetadataService | None = None
        self._admission: Admission | None = None
        self.contact: Contact | None = None

    def start(self) -> None:
        for seed in self.seeds:
            self._link(seed)

    def attach(self, metadata: MetadataService) -> None:
        """From now on, pass messages to the quorum and link to the brokers that the metadata names."""
        self._metadata = metadata
        self._admission = Admission(metadata.quorum, len(self.seeds))
        metadata.subscribe(self._follow)

    async def stop(self) -> None:
        if self._admission is not None:
            self._admission.stop()
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    @property
    def metadata(self) -> MetadataService | None:
        """None before this node follows the cluster's metadata."""
        return self._metadata

    @property
    def cluster_id(self) -> str:
        """Empty until there is a cluster; a joining node takes it from the first quorum message."""
        known = self._metadata.image.cluster_id if self._metadata is not None else ""
        return known or self._adopted_cluster_id

    @property
    def members(self) -> tuple[MemberKey, ...]:
        if self._metadata is None:
            return self._stored_members
        return self._metadata.quorum.membership.members

    def seeds_there(self) -> dict[str, Welcome]:
        """The newest answers of the seeds that are reached now, including this node's own."""
        return {
            seed: self.answers[seed]
            for seed in self.seeds
            if seed in self.answers and self.is_reached(self.answers[seed].member)
        }

    def is_reached(self, member: MemberKey) -> bool:
        return member == self.me or any(link.peer == member for link in self._links.values())

    # Outgoing

    async def ask_promise(self, member: MemberKey, request: AskPromise) -> PromiseAnswer:
        """The member's promise to let this node found a cluster; no answer counts as a refusal."""
        link = next((each for each in self._links.values() if each.peer == member), None)
        if link is None:
            return PromiseAnswer(f"node {member.node_id} is not reached")
        try:
            return decode_answer(await link.call(PEER_FOUNDING, encode(request), _PROMISE_SECONDS))
        except (KafkaError, msgspec.MsgspecError) as error:
            return PromiseAnswer(f"node {member.node_id} does not answer: {error}")

    def send(self, message: Message) -> None:
        link = next((each for each in self._links.values() if each.peer == message.to), None)
        is_sent = link is not None and link.send(self.cluster_id, message)
        if not is_sent and isinstance(message, InstallSnapshot):
            # In a later turn: the quorum that sends is in the middle of its own work.
            asyncio.get_running_loop().call_soon(self._snapshot_lost, message.to)

    async def forward(self, node_id: int, command: bytes) -> bytes:
        for link in self._links.values():
            if link.peer is not None and link.peer.node_id == node_id:
                return await link.call(PEER_COMMAND, command, _COMMAND_SECONDS)
        raise KafkaError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"there is no connection to node {node_id}; try again"
        )

    @property
    def ended_at(self) -> dict[int, float]:
        """By node id, when the last refused attempt to connect began, by the clock for leases.

        Only for seeds' addresses, which outlive restarts: another address may belong to a different node by now.
        """
        return {
            link.ended_member.node_id: link.ended_at
            for link in self._links.values()
            if link.ended_member is not None and link.address in self.seeds
        }

    @property
    def ended(self) -> set[int]:
        """Nodes whose processes have ended, as far as this node can see."""
        return {link.ended_member.node_id for link in self._links.values() if link.ended_member is not None}

    def has_just_lost(self, node_id: int) -> bool:
        return any(link.has_just_lost(node_id) for link in self._links.values())

    # Incoming

    def greet(self, caller: Hello) -> Welcome:
        retired = self._metadata.image.retired_directories if self._metadata is not None else ()
        welcome = answer(self._hello(), self.members, caller, retired, self.is_reached)
        if welcome.refusal is not None:
            sometimes("a node was refused by another")
            log.warning("node refused", node=caller.member.node_id, reason=welcome.refusal)
        elif caller.cluster_id and not self.cluster_id:
            self._heard_of(caller.cluster_id, caller.member, caller.address)
            if caller.seeds == self.seeds:
                # Its answer names the controller, or the reason why this node is refused.
                self._link_back(caller)
        elif self._admission is not None and welcome.members and self._metadata is not None:
            self._metadata.peer_came(caller.member)
            self._admission.consider(caller.member)
            self._link_back(caller)
            if caller.member not in welcome.members:
                welcome = msgspec.structs.replace(
                    welcome, controller=self._controller_address(self._metadata)
                )
        return msgspec.structs.replace(
            welcome,
            now_ms=self._time.wall_ms(),
            heard="" if self.known is None else self.known.cluster_id,
            promised=self.promised_founder(),
        )

    def _heard_of(self, cluster_id: str, member: MemberKey, address: str) -> None:
        if self.known is None:
            log.info("another node knows a cluster", cluster_id=cluster_id, node=member.node_id)
            self.known = KnownCluster(cluster_id, member.node_id, address)

    def receive(self, source: object, data: memoryview) -> None:
        """A part of a message; `source` is the connection that it came on."""
        assembler = self._assemblers.get(source)
        if assembler is None:
            assembler = self._assemblers[source] = Assembler()
        try:
            received = assembler.add(data, self.cluster_id)
        except BadMessage as error:
            raise MalformedRequest(str(error)) from error
        if received is None:
            return
        sender_cluster_id, message = received
        if not self.cluster_id:
            self._adopted_cluster_id = sender_cluster_id
        if self.contact is not None:
            self.contact.heard(message.sender.node_id, asyncio.get_running_loop().time())
        if self._metadata is not None:
            self._metadata.quorum.receive(message)

    # Links

    def _controller_address(self, metadata: MetadataService) -> str:
        """Empty when unknown."""
        broker = metadata.image.brokers.get(metadata.controller_id)
        return "" if broker is None else _address_of(broker)

    def _link(self, address: str) -> None:
        if address not in self._links:
            link = self._links[address] = PeerLink(
                address,
                self._hello,
                self._greeted,
                self._snapshot_lost,
                self._gone,
                elapsed=self._elapsed,
                longest_pause=self._longest_pause,
                is_seed=address in self.seeds,
            )
            self._tasks[address] = asyncio.create_task(keep_going(link.run), name=f"link to {address}")

    def _unlink(self, address: str) -> None:
        del self._links[address]
        self._tasks.pop(address).cancel()

    def _hello(self) -> Hello:
        return Hello(self.cluster_id, self.me, self.seeds, self._address)

    def _link_back(self, caller: Hello) -> None:
        """Connect to the address that the caller gives: it may be neither a seed nor a broker yet."""
        is_linked = any(link.peer == caller.member for link in self._links.values())
        if caller.address and caller.member != self.me and not is_linked:
            self._link(caller.address)

    def _greeted(self, link: PeerLink, welcome: Welcome) -> None:
        before = self.answers.get(link.address)
        is_news = before is None or (before.member, before.refusal) != (welcome.member, welcome.refusal)
        self.answers[link.address] = welcome
        if welcome.cluster_id and not self.cluster_id:
            self._heard_of(welcome.cluster_id, welcome.member, link.address)
        if self._metadata is not None and welcome.refusal is None:
            self._metadata.peer_came(welcome.member)
        if welcome.now_ms >= 0 and welcome.member != self.me:
            self._time.heard(welcome.member.node_id, welcome.now_ms)
        if welcome.refusal is not None:
            self.refusal = f"the node at {link.address} refuses this one: {welcome.refusal}"
            self.was_refused.set()
            if is_news:
                log.error("refused by another node", address=link.address, reason=welcome.refusal)
            if welcome.is_removed:
                self.on_removed(self.refusal)
        elif welcome.member == self.me:
            self._unlink(link.address)
        else:
            if welcome.controller:
                self._link(welcome.controller)
            self._keep_one(link)
            if is_news:
                log.info("connected", node=welcome.member.node_id, address=link.address)

    def _keep_one(self, link: PeerLink) -> None:
        """Keep one link to a node that has two addresses: a seed's address, because it outlives restarts."""
        twin = next(
            (each for each in self._links.values() if each is not link and each.peer == link.peer), None
        )
        if twin is not None:
            is_seed = link.address in self.seeds and twin.address not in self.seeds
            self._unlink(twin.address if is_seed else link.address)

    def _follow(self, old: MetadataImage, new: MetadataImage, _records: Records) -> None:
        if old.brokers is new.brokers:
            return
        for broker_id in old.brokers.keys() - new.brokers.keys():
            self._part_with(broker_id)
        linked = {link.peer.node_id for link in self._links.values() if link.peer is not None}
        for broker in new.live_brokers:
            address = _address_of(broker)
            if broker.broker_id not in linked | {self.me.node_id} and address:
                self._link(address)

    def _part_with(self, broker_id: int) -> None:
        """Drop the link to a removed broker, unless it is a seed, which may come back."""
        for address, link in list(self._links.items()):
            if link.peer is not None and link.peer.node_id == broker_id and address not in self.seeds:
                self._unlink(address)

    def _gone(self, peer: MemberKey) -> None:
        log.info("node gone", node=peer.node_id)
        if self._metadata is not None:
            self._metadata.peer_gone(peer)

    def _snapshot_lost(self, to: MemberKey) -> None:
        if self._metadata is not None:
            self._metadata.quorum.report_snapshot_failed(to)


def _address_of(broker: BrokerImage) -> str:
    """Empty for a wildcard address, at which other nodes cannot reach the broker."""
    endpoint = broker.for_nodes
    return "" if endpoint.host in WILDCARDS else endpoint.address
