"""A node without a cluster: finds one, promises another node to let it found one, or founds one itself."""

import asyncio
from collections.abc import Collection

import msgspec

from millstream.broker.peers.founding import (
    CannotFound,
    CannotJoin,
    Join,
    Propose,
    Situation,
    Wait,
    chosen_voters,
    next_step,
    refusal_to_promise,
    waits_for_founder,
)
from millstream.broker.peers.network import PeerNetwork
from millstream.cluster.founding_messages import AskPromise, PromiseAnswer
from millstream.cluster.raft.membership import MemberKey
from millstream.observability.logs import get_logger
from millstream.runtime.disk import Disk
from millstream.runtime.sometimes import sometimes
from millstream.runtime.workers import Workers

FILE = "founding-promise"

_decoder = msgspec.json.Decoder(MemberKey)


class Promise:
    """`to` is the founder that has this node's promise. After `claim` this node founds itself, and promises nothing."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._path = f"{data_dir}/{FILE}"
        self.to: MemberKey | None = None
        self.kept: MemberKey | None = None
        """The promise on disk, which may differ from `to`: the write may have failed, or still be under way."""
        self.is_claimed = False
        if disk.exists(self._path):
            try:
                self.to = self.kept = _decoder.decode(disk.read(self._path))
            except msgspec.MsgspecError as error:
                raise CannotJoin(
                    f"{self._path} cannot be read ({error}); it matters only until the cluster is founded: remove it if"
                    " that has happened, or empty --data"
                ) from error

    def claim(self, me: MemberKey) -> bool:
        """Whether this node may found a cluster now; if so, it promises no other node from now on."""
        self.is_claimed = self.to in (None, me)
        return self.is_claimed

    def keep(self, founder: MemberKey) -> None:
        """Write the promise to disk, in a thread; the loop has set `to` before."""
        self._disk.write_atomically(self._path, msgspec.json.encode(founder))
        self.kept = founder


log = get_logger("millstream.cluster")

_LOOK_SECONDS = 0.05
_AGAIN_SECONDS = 1.0

Voters = tuple[MemberKey, ...]


class Founder:
    """`waiting_for` says why there is no cluster yet. `patience_seconds`: see `cluster.founding_wait`."""

    def __init__(
        self, network: PeerNetwork, promise: Promise, workers: Workers, patience_seconds: float
    ) -> None:
        self.waiting_for = ""
        self._network = network
        self._promise = promise
        self._workers = workers
        self._patience_seconds = patience_seconds
        self._wish: Voters | None = None
        self._lock = asyncio.Lock()
        network.promised_founder = lambda: promise.to

    async def decide(self) -> Voters | None:
        """The voters of the cluster that this node founds now; None when it is to join a cluster instead."""
        loop = asyncio.get_running_loop()
        since: float | None = None
        while True:
            step = next_step(self._situation())
            if isinstance(step, Join):
                return None
            if isinstance(step, Wait):
                self.waiting_for = step.reason
            voters, since = self._due(step, since, loop.time())
            if voters is None:
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            refusals = await self._gather(voters)
            if not refusals and self._may_found():
                return voters
            self._wish = since = None
            # The caller logs it once a minute.
            self.waiting_for = "; ".join(refusals) or self.waiting_for
            await asyncio.sleep(_AGAIN_SECONDS)

    def _due(
        self, step: Propose | Wait, since: float | None, now: float
    ) -> tuple[Voters | None, float | None]:
        """The voters to found with now, if it is time, and since when all seeds have been reached without a break."""
        if self._wish is not None:
            return self._wish, since
        if isinstance(step, Wait):
            return None, None
        since = now if since is None else since
        # Within this time a node that is no seed, but knows a cluster, gets in touch.
        return (step.voters if now - since >= self._patience_seconds else None), since

    async def _gather(self, voters: Voters) -> list[str]:
        """Why others refuse their promise; empty when all have given it."""
        request = AskPromise(self._network.me, voters)
        others = [each for each in voters if each != self._network.me]
        answers = await asyncio.gather(*(self._network.ask_promise(each, request) for each in others))
        return [each.refusal for each in answers if each.refusal is not None]

    def _may_found(self) -> bool:
        """Check and claim in one step, once all have promised: this node cannot promise another in between."""
        now = self._situation()
        is_alone = not any(each.members for each in now.answers) and now.known is None
        return is_alone and self._promise.claim(now.me)

    # -- what others ask

    def wish(self, node_ids: Collection[int]) -> PromiseAnswer:
        """An operator asks to found the cluster with these nodes."""
        if self._network.members or self._promise.is_claimed:
            return PromiseAnswer("there is a cluster already; see `millstream cluster status`")
        try:
            self._wish = chosen_voters(self._situation(), node_ids)
        except (CannotFound, CannotJoin) as error:
            return PromiseAnswer(str(error))
        log.info("founding requested", nodes=sorted(node_ids))
        return PromiseAnswer()

    async def promise(self, asked: AskPromise) -> PromiseAnswer:
        async with self._lock:
            network, promise = self._network, self._promise
            if network.members or network.cluster_id or promise.is_claimed:
                return PromiseAnswer(f"node {network.me.node_id} belongs to a cluster")
            refusal = refusal_to_promise(self._situation(), asked.founder, asked.voters)
            if refusal is None and promise.kept != asked.founder:
                # Set first, so that this node founds nothing while the promise is being written.
                promise.to = asked.founder
                await self._workers.run(lambda: promise.keep(asked.founder))
                log.info("founding promised", founder=asked.founder.node_id)
            if refusal is not None:
                sometimes("a founder was refused")
            return PromiseAnswer(refusal)

    def why_not_founded(self) -> str:
        """What a joining node waits for, where the cluster may not be founded yet; else empty."""
        founder = self._promise.to
        if founder is None or self._network.members or self._network.is_reached(founder):
            return ""
        return waits_for_founder(founder)

    def _situation(self) -> Situation:
        network = self._network
        return Situation(
            network.me,
            network.seeds,
            network.seeds_there(),
            tuple(network.answers.values()),
            network.known,
            self._promise.to,
        )
