"""This node as one that coordinates no group: its handlers refuse what is asked of groups, each in the form of its API.

A request that was lost on its way to the coordinator may have been carried out there, or may yet be. If this node
coordinates the group by now, its own handlers would carry it out once more: a commit after a later one, another member,
the end of a group that was made again. So they are shown this instead, and the client decides, as it would without a
proxy.
"""

from typing import TYPE_CHECKING, Any, NoReturn, cast

from millstream.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.node import Broker


def without_groups(broker: "Broker") -> "Broker":
    return cast("Broker", _WithoutGroups(broker))


class _WithoutGroups:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    @property
    def groups(self) -> "_NoGroups":
        return _NoGroups(self._broker)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


class _NoGroups:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    @property
    def most_offsets_in_a_commit(self) -> int:
        return self._broker.groups.most_offsets_in_a_commit

    def decide(self, group_id: str, _request: object) -> NoReturn:
        raise KafkaError(
            ErrorCode.NOT_COORDINATOR, f"the answer of the coordinator of {group_id!r} was lost: ask again"
        )

    async def submit(self, group_id: str, request: object, _wanted: object) -> NoReturn:
        self.decide(group_id, request)

    async def match_topics(self, group_id: str, pattern: str | None) -> NoReturn:
        self.decide(group_id, pattern)
