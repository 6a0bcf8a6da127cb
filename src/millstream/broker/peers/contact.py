"""Detects that other nodes may have taken over: this node has heard nothing from them for a session's time.

A node that is cut off from the other nodes but not from its clients would keep clients waiting for acknowledgements
that cannot come, and its old metadata would direct them back to it.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.broker.partitions.registry import CutOff
from millstream.cluster.metadata.fencing import BrokerSessions
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.raft.membership import majority
from millstream.cluster.raft.state import RaftSettings
from millstream.config.settings import ClusterSettings
from millstream.observability.logs import get_logger
from millstream.observability.repeats import Condition
from millstream.runtime.sometimes import sometimes

if TYPE_CHECKING:
    from millstream.broker.peers.lease import Isolation, Lease
    from millstream.broker.peers.network import PeerNetwork

log = get_logger("millstream.cluster")

_CHECKS_PER_SESSION = 10


class Contact:
    """When the last quorum message of each node arrived. Times are seconds of a monotonic clock."""

    def __init__(self, node_id: int, session_seconds: float, now: float) -> None:
        self._me = node_id
        self._sessions = BrokerSessions(session_seconds, now)

    def heard(self, node_id: int, now: float) -> None:
        self._sessions.heard(node_id, now)

    def is_lost(
        self, voters: Collection[int], leader: int | None, ended: Collection[int], now: float
    ) -> bool:
        """Call it several times per session.

        While the controller is heard, contact is not lost: the controller reports when it fences this node. Without a
        controller it is enough to hear a majority of the voters: a voter that hears a controller does not answer
        candidates, so these voters have none either. Nobody can take over while so many processes have `ended` that
        the other voters are no majority.
        """
        others = set(voters) - {self._me}
        controller = set() if leader is None else {leader} - {self._me}
        silent = set(self._sessions.expired(sorted(others | controller), now))
        if controller - silent:
            return False
        needed = majority(len(voters))
        return len(set(voters) - silent) < needed <= len(others - set(ended))


def no_election_possible_at(voters: Collection[int], ended_at: Mapping[int, float]) -> float | None:
    """The last time at which too many voters were dead for a majority; None while the others are a majority.

    This node's own vote counts: a controller that was elected with it could still fence this node.
    """
    dead = sorted((ended_at[voter] for voter in voters if voter in ended_at), reverse=True)
    needed = len(voters) - majority(len(voters)) + 1
    return dead[needed - 1] if len(dead) >= needed else None


class ContactWatch:
    """Keeps clients off partitions that another node may lead by now, until this node has the newest metadata."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataService,
        network: "PeerNetwork",
        lease: "Lease",
        isolation: "Isolation",
        cluster: ClusterSettings,
        raft: RaftSettings,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._network = network
        self._lease = lease
        self._isolation = isolation
        now = asyncio.get_running_loop().time
        self._lost_contact = Condition(log, now, "cut off from other nodes", "in contact with other nodes")
        # After a controller dies, no messages arrive until a node stands for election.
        election_ticks = 2 * (raft.election_ticks + raft.heartbeat_ticks)
        self._seconds = max(cluster.session_timeout, election_ticks * cluster.tick) / 1000

    async def run(self) -> None:
        loop, network, isolation = asyncio.get_running_loop(), self._network, self._isolation
        contact = network.contact = Contact(self._node_id, self._seconds, loop.time())
        while True:
            await asyncio.sleep(self._seconds / _CHECKS_PER_SESSION)
            status = self._metadata.quorum.status()
            leader = None if status.leader is None else status.leader.node_id
            voters = [voter.node_id for voter in status.membership.voters]
            self._prolong(voters)
            is_lost = contact.is_lost(voters, leader, network.ended, loop.time())
            is_cut_off = isolation.is_cut_off_by(CutOff.SILENCE)
            if is_lost:
                self._lost_contact.lasts(effect="clients sent to other nodes")
                if not is_cut_off:
                    sometimes("a node was cut off from the others")
                    isolation.cut_off(CutOff.SILENCE)
            elif is_cut_off:
                await self._return()

    def _prolong(self, voters: Collection[int]) -> None:
        """The last live node needs no controller for its lease."""
        at = no_election_possible_at(voters, self._network.ended_at)
        if at is not None:
            self._lease.prolong(at)

    async def _return(self) -> None:
        """Rejoin after a read barrier: before it, this node would act on old metadata."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._metadata.quorum.read_barrier()
            self._lost_contact.ended()
            self._isolation.rejoin(CutOff.SILENCE)
