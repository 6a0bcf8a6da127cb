"""A node without a cluster at work: looks for one, promises another to let it found one, or founds it."""

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
    """`to` is None until one was given. Once this node founds a cluster itself (`claim`) it gives none any more."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._path = f"{data_dir}/{FILE}"
        self.to: MemberKey | None = None
        self.kept: MemberKey | None = None
        """What is on disk: to write it down may have failed, or its end was not waited for."""
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
        """Whether this node may found a cluster now; if so, it gives its promise to no other from this moment on."""
        self.is_claimed = self.to in (None, me)
        return self.is_claimed

    def keep(self, founder: MemberKey) -> None:
        """Write it down; blocks, and belongs in a thread. `to` is set by the loop before."""
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
        network.promised = lambda: promise.to

    async def decide(self) -> Voters | None:
        """The first members of a cluster that this node founds now; None where it is to be let in by others."""
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
            # Told by whoever waits for the outcome, once a minute.
            self.waiting_for = "; ".join(refusals) or self.waiting_for
            await asyncio.sleep(_AGAIN_SECONDS)

    def _due(
        self, step: Propose | Wait, since: float | None, now: float
    ) -> tuple[Voters | None, float | None]:
        """Whom to found with at this moment, and since when all were there without a break."""
        if self._wish is not None:
            return self._wish, since
        if isinstance(step, Wait):
            return None, None
        since = now if since is None else since
        # A node that knows of a cluster and is no seed calls within this time.
        return (step.voters if now - since >= self._patience_seconds else None), since

    async def _gather(self, voters: Voters) -> list[str]:
        """What the others have against it."""
        request = AskPromise(self._network.me, voters)
        others = [each for each in voters if each != self._network.me]
        answers = await asyncio.gather(*(self._network.ask_promise(each, request) for each in others))
        return [each.refusal for each in answers if each.refusal is not None]

    def _may_found(self) -> bool:
        """Checked in one step, after all have promised: from here on this node gives its promise to no other."""
        now = self._situation()
        is_alone = not any(each.members for each in now.answers) and now.known is None
        return is_alone and self._promise.claim(now.me)

    # -- what others ask

    def wish(self, node_ids: Collection[int]) -> PromiseAnswer:
        """An operator wants the cluster founded with these."""
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
                # First, so that this node does not found while it is written down.
                promise.to = asked.founder
                await self._workers.run(lambda: promise.keep(asked.founder))
                log.info("founding promised", founder=asked.founder.node_id)
            if refusal is not None:
                sometimes("a founder was refused")
            return PromiseAnswer(refusal)

    def why_not_founded(self) -> str:
        """For a node that waits to be let in by a cluster that may not be there yet."""
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
