"""Groups as a node sees them that coordinates none: everything that is asked of them is refused.

A request that was lost on its way to the coordinator may have been carried out there, or may yet be. If this node
coordinates the group by now, its own handlers would carry it out once more: a commit after a later one, another member,
the end of a group that was made again. So they get this instead of the groups, and the client decides, as it would
without a proxy.
"""

from typing import TYPE_CHECKING, NoReturn

from millstream.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups import Groups


class NoGroups:
    def __init__(self, groups: "Groups") -> None:
        self._groups = groups

    @property
    def most_offsets_in_a_commit(self) -> int:
        return self._groups.most_offsets_in_a_commit

    def decide(self, group_id: str, _request: object) -> NoReturn:
        raise KafkaError(
            ErrorCode.NOT_COORDINATOR, f"the answer of the coordinator of {group_id!r} was lost: ask again"
        )

    async def submit(self, group_id: str, request: object) -> NoReturn:
        self.decide(group_id, request)

    async def match_topics(self, group_id: str, pattern: str | None) -> NoReturn:
        self.decide(group_id, pattern)
