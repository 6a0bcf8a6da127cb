"""This node as one of several: finds the others, joins or founds the cluster, sends heartbeats, leaves."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from millstream.broker.machine import Machine, NodeEnd
from millstream.broker.partitions.writability import Writability
from millstream.broker.peers.contact import ContactWatch
from millstream.broker.peers.founder import Founder, Promise
from millstream.broker.peers.founding import CannotJoin, away_of
from millstream.broker.peers.heartbeats import Heartbeats
from millstream.broker.peers.lease import Isolation, Lease
from millstream.broker.peers.link import LONGEST_PAUSE
from millstream.broker.peers.network import PeerNetwork
from millstream.broker.replicas.recovered import RecoveredReplicas
from millstream.broker.server.listener import WILDCARDS
from millstream.cluster.founding_messages import AskPromise, FoundWith, NodeState, PromiseAnswer
from millstream.cluster.metadata.brokers import RegisterBroker
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.directory import StoredReplica, create_replica, open_replica
from millstream.cluster.metadata.fencing import RebalanceSettings
from millstream.cluster.metadata.names import id_text, readable_ids
from millstream.cluster.metadata.records import ClusterCreated, Endpoint, encode_records
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.raft.entries import HardState, Restored, Snapshot, first_snapshot
from millstream.cluster.raft.membership import MemberKey, Membership
from millstream.cluster.raft.state import RaftSettings
from millstream.config.settings import Settings
from millstream.observability.logs import get_logger
from millstream.observability.repeats import LogThrottle
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.storage.checkpoint import clean_broker_epoch

Result = TypeVar("Result")

log = get_logger("millstream.cluster")

_LOOK_SECONDS = 0.05
_TELL_SECONDS = 5.0
_LEAVE_SECONDS = 2.0


class ClusterMembership:
    def __init__(
        self,
        settings: Settings,
        endpoints: tuple[Endpoint, Endpoint],
        machine: Machine,
        data_dir: str,
        writability: Writability,
        isolation: Isolation,
        end: NodeEnd,
        raft: RaftSettings,
    ) -> None:
        _, for_nodes = endpoints
        if any(each.host in WILDCARDS for each in endpoints):
            # Only the node itself knows which address a client used, and clients learn of nodes from other nodes too.
            raise CannotJoin(
                f"a node of several that listens on {WILDCARDS[0]} or {WILDCARDS[1]} must say where it is reached: set"
                " broker.advertised_host (for --node-listen broker.node_advertised_host), or listen on one address"
            )
        self.metadata: MetadataService | None = None
        """None until the node follows the cluster's metadata."""
        self._settings = settings
        self._node_id = settings.broker.id
        self._endpoints = endpoints
        self._machine = machine
        self._data_dir = data_dir
        self._writability = writability
        self._isolation = isolation
        self._end = end
        self._raft = raft
        cluster = settings.cluster
        session_seconds = self._session_seconds = cluster.session_timeout / 1000
        self._heartbeat_seconds = cluster.heartbeat_interval / 1000
        seeds = tuple(sorted(set(cluster.bootstrap_servers)))
        self._stored = self._open()
        self.lease = Lease(
            session_seconds,
            machine.clock.elapsed,
            lambda: self._followed.quorum.applied_index,
            lambda: self._followed.quorum.is_only_voter,
        )
        self.network = PeerNetwork(
            self._stored.key,
            self._stored.members,
            seeds,
            machine.expiry,
            for_nodes.address,
            elapsed=machine.clock.elapsed,
            # The last live node must find the others dead again before its lease ends.
            longest_pause=min(LONGEST_PAUSE, self.lease.seconds / 3),
        )
        self._founder = Founder(
            self.network, Promise(machine.disk, data_dir), machine.workers, cluster.founding_wait / 1000
        )
        self._waiting_reason: Callable[[], str] | None = lambda: "the node is starting"
        self._heartbeats: Heartbeats | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._contact: asyncio.Task[None] | None = None

    def _open(self) -> StoredReplica:
        disk, data_dir = self._machine.disk, self._data_dir
        stored = open_replica(disk, data_dir, self._node_id)
        if stored is None:
            key = MemberKey(self._node_id, self._machine.host.new_id())
            # Empty: the founder provides the first metadata.
            stored = create_replica(disk, data_dir, key, Snapshot())
        return stored

    @property
    def _followed(self) -> MetadataService:
        assert self.metadata is not None
        return self.metadata

    async def join(self) -> MetadataService:
        """Return when this node is a registered broker, though fenced, of a cluster whose metadata it follows."""
        self.network.start()
        stored = self._stored
        if not stored.members:
            stored = await self._found_or_join()
        metadata = MetadataService(
            stored,
            transport=self.network,
            forward=self.network.forward,
            session_seconds=self._session_seconds,
            write_refused=self._writability.found_no_room,
            rebalance=self._rebalance_settings(),
            failed=lambda error: self._end.fail(str(error)),
            host=self._machine.host,
            raft=self._raft,
            tick_ms=self._settings.cluster.tick,
            snapshot_after=self._settings.cluster.snapshot_size,
            defaults=Defaults.of(self._settings),
        )
        self.metadata = metadata
        self.network.attach(metadata)
        await self._unless_refused(
            metadata.follow(), "a majority of the cluster's nodes", self._why_no_majority
        )
        metadata.broker_epoch = await self._unless_refused(
            self._register(metadata), "a controller to register with", self._why_no_majority
        )
        log.info("joined", cluster_id=metadata.image.cluster_id, controller=metadata.controller_id)
        return metadata

    async def tell_recovered(self, recovered: RecoveredReplicas) -> None:
        """Return when the controller knows how far the logs reach that an unclean stop has put in doubt."""
        await self._unless_refused(
            recovered.tell(), "a controller to report recovered logs to", self._why_no_majority
        )

    def _rebalance_settings(self) -> RebalanceSettings | None:
        replication = self._settings.replication
        if not replication.auto_leader_rebalance:
            return None
        return RebalanceSettings(
            replication.leader_imbalance_check_seconds, replication.leader_imbalance_percentage
        )

    async def serve(self) -> None:
        """Return when a controller has accepted the first heartbeat; more follow while the node runs."""
        self._isolation.lease_until(lambda: self.lease.is_valid)
        accepted = asyncio.Event()
        heartbeats = self._heartbeats = Heartbeats(
            self._node_id,
            self._machine,
            self._followed,
            self.lease,
            self._writability,
            self._isolation,
            self._settings.cluster,
            self._end.fail,
        )
        self._writability.make_way = heartbeats.hurry
        self._heartbeat_task = asyncio.create_task(
            keep_going(partial(heartbeats.run, accepted)), name="heartbeats"
        )
        await self._unless_refused(accepted.wait(), "a controller to let this node in", self._why_no_majority)
        self._waiting_reason = None
        # Other nodes refuse a removed node, so no heartbeat tells it that its registration is gone.
        self.network.on_removed = self._end.fail
        watch = ContactWatch(
            self._node_id,
            self._followed,
            self.network,
            self.lease,
            self._isolation,
            self._settings.cluster,
            self._raft,
        )
        self._contact = asyncio.create_task(keep_going(watch.run), name="contact")

    async def leave(self) -> None:
        """Hand over what this node leads before it stops; given up when no controller answers in time."""
        if self._contact is not None:
            self._contact.cancel()
        if self._heartbeat_task is not None and self._heartbeats is not None:
            self._heartbeat_task.cancel()
            # A heartbeat that is under way must not arrive after the one that announces the stop.
            await asyncio.gather(self._heartbeat_task, return_exceptions=True)
            metadata = self._followed
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await metadata.submit(self._heartbeats.last())
            await self._hand_over(metadata)

    async def close(self) -> None:
        await self.network.stop()
        if self.metadata is None:
            self._stored.wal.close()
        else:
            await self.metadata.close()

    @property
    def waiting_for(self) -> str:
        """Why this node does not serve yet; empty when it does."""
        return "" if self._waiting_reason is None else self._waiting_reason()

    async def founding_asked(self, request: AskPromise | FoundWith) -> PromiseAnswer:
        """The answer to another node or an operator that wants to found a cluster."""
        if isinstance(request, AskPromise):
            return await self._founder.promise(request)
        return self._founder.wish(request.node_ids)

    def state(self) -> NodeState:
        network, promised = self.network, self.network.promised_founder()
        return NodeState(
            network.me.node_id,
            network.cluster_id,
            self.waiting_for,
            tuple((seed, each.member.node_id) for seed, each in network.seeds_there().items()),
            -1 if promised is None else promised.node_id,
        )

    async def _found_or_join(self) -> StoredReplica:
        founder = self._founder
        voters = await self._unless_refused(founder.decide(), "the other seeds", lambda: founder.waiting_for)
        if voters is None:
            return self._stored
        return await self._machine.workers.run(lambda: self._found(voters))

    def _found(self, voters: tuple[MemberKey, ...]) -> StoredReplica:
        cluster_id = id_text(readable_ids(self._machine.host.new_id)())
        first = first_snapshot(Membership(voters), encode_records([ClusterCreated(cluster_id)]))
        state = Restored(HardState(), first)
        self._stored.wal.start_from(state)
        log.info("cluster founded", cluster_id=cluster_id, nodes=[voter.node_id for voter in voters])
        return replace(self._stored, restored=state)

    def _why_no_majority(self) -> str:
        network = self.network
        return self._founder.why_not_founded() or away_of(network.members, network.me, network.is_reached)

    async def _register(self, metadata: MetadataService) -> int:
        disk, data_dir = self._machine.disk, self._data_dir
        stopped_in = await self._machine.workers.run(lambda: clean_broker_epoch(disk, data_dir))
        command = RegisterBroker(
            self._node_id,
            self._endpoints,
            self._settings.broker.rack,
            is_fenced=True,
            previous_epoch=stopped_in,
            directory=self._stored.key.directory_id,
            min_insync=int(self._settings.broker_configs().get("min.insync.replicas", 1)),
            incarnation=self._machine.host.new_id(),
            session_ms=self._settings.cluster.session_timeout,
        )
        while True:
            try:
                return await metadata.submit(command)
            except KafkaError as error:
                if error.code is ErrorCode.INVALID_REGISTRATION:
                    raise CannotJoin(error.message) from error
                log.warning("not registered yet", error=error.message)
                await asyncio.sleep(self._heartbeat_seconds)

    async def _hand_over(self, metadata: MetadataService) -> None:
        """An orderly change of leader takes milliseconds, an election after a timeout most of a second."""
        status = metadata.quorum.status()
        others = [
            each for each in status.followers if each.is_active and each.member in status.membership.voters
        ]
        if not metadata.is_controller or not others:
            return
        with suppress(Exception):
            metadata.quorum.transfer_leadership(max(others, key=lambda each: each.match_index).member)
            async with asyncio.timeout(_LEAVE_SECONDS):
                while metadata.is_controller:  # noqa: ASYNC110 - the listener is the service's
                    await asyncio.sleep(_LOOK_SECONDS / 10)

    async def _unless_refused(
        self, work: Coroutine[Any, Any, Result], awaited: str, reason: Callable[[], str]
    ) -> Result:
        """The result of `work`, which may wait for others without limit; CannotJoin if they refuse this node."""
        task, failure = asyncio.ensure_future(work), self._end.failure
        refused = asyncio.ensure_future(self.network.was_refused.wait())
        repeats: LogThrottle[tuple[str, str]] = LogThrottle(asyncio.get_running_loop().time)
        self._waiting_reason = lambda: f"waiting for {awaited}: {reason()}"
        try:
            while True:
                done, _ = await asyncio.wait(
                    (task, refused, failure), timeout=_TELL_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if task in done:
                    return task.result()
                if refused in done:
                    raise CannotJoin(str(self.network.refusal))
                if done:
                    raise CannotJoin(str(failure.exception()))
                if repeats.is_due((awaited, why := reason())):
                    log.info("waiting", awaited=awaited, reason=why)
        finally:
            task.cancel()
            refused.cancel()
