"""Lets nodes into the quorum: first as learners, then as voters while there are fewer voters than seeds."""

import asyncio

from millstream.cluster.raft.driver import Driver
from millstream.cluster.raft.errors import ChangeRefused, RaftError
from millstream.cluster.raft.membership import Change, ChangeKind, MemberKey
from millstream.cluster.raft.state import Role
from millstream.observability.logs import get_logger

log = get_logger("millstream.peers")


class Admission:
    """One change at a time; a node that was not admitted is considered again with its next greeting."""

    def __init__(self, quorum: Driver, wanted_voters: int) -> None:
        self._quorum = quorum
        self._wanted_voters = wanted_voters
        self._task: asyncio.Task[None] | None = None

    def consider(self, member: MemberKey) -> None:
        change = self._change_for(member)
        if change is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._make(change), name="admission")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _change_for(self, member: MemberKey) -> Change | None:
        membership = self._quorum.membership
        if member in membership.voters or self._quorum.status().role is not Role.LEADER:
            return None
        if member not in membership.learners:
            return Change(ChangeKind.ADD_LEARNER, member)
        if len(membership.voters) < self._wanted_voters:
            return Change(ChangeKind.PROMOTE, member)
        return None

    async def _make(self, change: Change) -> None:
        try:
            await self._quorum.change_membership(change)
        except ChangeRefused:
            return
        except RaftError as error:
            log.warning("membership not changed", node=change.member.node_id, error=str(error))
            return
        log.info("membership changed", node=change.member.node_id, change=change.kind.value)
