"""Whether the others may have gone on without this node: it hears nothing from them for as long as they wait for it.

A node that is cut off from the others, and not from its clients, would let them wait for acknowledgements that cannot
come, and send them back to itself with what it knows of leaders.
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
    """When messages of the quorum came, and from whom. Times are seconds of a clock that does not jump."""

    def __init__(self, node_id: int, session_seconds: float, now: float) -> None:
        self._me = node_id
        self._sessions = BrokerSessions(session_seconds, now)

    def heard(self, node_id: int, now: float) -> None:
        self._sessions.heard(node_id, now)

    def is_lost(
        self, voters: Collection[int], leader: int | None, ended: Collection[int], now: float
    ) -> bool:
        """Call it several times within a session.

        A controller that is heard tells when this node is fenced. Without one it is enough to hear as many as make a
        majority: voters who hear a controller do not answer others that want to be elected, so they have none either.
        The others are no majority while too many processes have `ended`.
        """
        others = set(voters) - {self._me}
        controller = set() if leader is None else {leader} - {self._me}
        silent = set(self._sessions.expired(sorted(others | controller), now))
        if controller - silent:
            return False
        needed = majority(len(voters))
        return len(set(voters) - silent) < needed <= len(others - set(ended))


def no_election_possible_at(voters: Collection[int], ended_at: Mapping[int, float]) -> float | None:
    """When so many voters had been found dead that the others are no majority; None while they are one.

    With this node's own vote too: a controller that was elected with it might fence it all the same.
    """
    dead = sorted((ended_at[voter] for voter in voters if voter in ended_at), reverse=True)
    needed = len(voters) - majority(len(voters)) + 1
    return dead[needed - 1] if len(dead) >= needed else None


class ContactWatch:
    """Keeps clients away from what another node may lead by now, until the metadata is known to be the newest."""

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
        self._silence = Condition(log, now, "cut off from other nodes", "in contact with other nodes")
        # After a controller has died no messages come until a node stands for election.
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
                self._silence.lasts(effect="clients sent to other nodes")
                if not is_cut_off:
                    sometimes("a node was cut off from the others")
                    isolation.cut_off(CutOff.SILENCE)
            elif is_cut_off:
                await self._return()

    def _prolong(self, voters: Collection[int]) -> None:
        """For the last node alive, which needs no controller for its lease."""
        at = no_election_possible_at(voters, self._network.ended_at)
        if at is not None:
            self._lease.prolong(at)

    async def _return(self) -> None:
        """Confirmed by the controller: until then this node would act on old metadata."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._metadata.quorum.read_barrier()
            self._silence.ended()
            self._isolation.rejoin(CutOff.SILENCE)
