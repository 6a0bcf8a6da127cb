"""Share sessions of Kafka's clients: one for each group and member, on the connection that opened it.

As in Kafka, it is not checked whether the member belongs to its group.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec

from millstream.broker.shares.taken import check_member
from millstream.doors.caller import Caller
from millstream.protocol.errors import ErrorCode, KafkaError

OPEN, CLOSE = 0, -1
# Limited, because a fetch visits each partition of its session.
MOST_OF_ONE = 10_000
MOST_OF_ALL = 250_000
_HIGHEST_EPOCH = 2**31 - 1

Place = tuple[UUID, int]


class Source(Protocol):
    """The connection that a session was opened on."""

    @property
    def closed(self) -> bool: ...


class ShareSession(msgspec.Struct):
    group_id: str
    member: str
    source: Source
    epoch: int = 1
    proxied_for: Caller | None = None
    """The client, if this node answers its requests for all others."""
    places: dict[Place, None] = msgspec.field(default_factory=dict)

    def use_next(self, epochs: Sequence[int]) -> int:
        """How many of these epochs continue the session's; advances the session's epoch past them."""
        expected = self.epoch
        for epoch in epochs:
            if epoch != expected or epoch == _HIGHEST_EPOCH:
                break
            expected += 1
        used, self.epoch = expected - self.epoch, expected
        return used

    def add(self, place: Place) -> None:
        self.places[place] = None

    def update(self, topics: Sequence[Any], forgotten: Sequence[tuple[UUID, Sequence[int]]] = ()) -> None:
        """Add named partitions; remove forgotten ones, even if they are named for a last acknowledgement."""
        for topic in topics:
            for each in topic.partitions:
                self.add((topic.topic_id, each.partition_index))
        for topic_id, indexes in forgotten:
            for index in indexes:
                self.places.pop((topic_id, index), None)

    def in_turn(self) -> list[Place]:
        """All partitions, each time with another one first, so that none is always served last."""
        places = list(self.places)
        if len(places) > 1:
            first = next(iter(self.places))
            del self.places[first]
            self.places[first] = None
        return places


class ShareSessions:
    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def is_full(self) -> bool:
        return len(self._sessions) >= self._most

    @property
    def partitions(self) -> int:
        return sum(len(session.places) for session in self._sessions.values())

    def find(self, group_id: str, member: str) -> ShareSession | None:
        return self._sessions.get((group_id, member))

    def use(
        self, group_id: str, member: str, epoch: int, source: Source, topics: Sequence[Any] = ()
    ) -> ShareSession:
        """The session of a request that names these topics; advances the session's epoch.

        KafkaError as in Kafka, and if there are too many partitions.
        """
        key = (group_id, member)
        self._check_room(None if epoch == OPEN else self._sessions.get(key), topics)
        if epoch == OPEN:
            check_member(member)
            if key not in self._sessions and self.is_full:
                raise KafkaError(
                    ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"this node has {self._most} share sessions"
                )
            session = self._sessions[key] = ShareSession(group_id, member, source)
            return session
        found = self._sessions.get(key)
        if found is None:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_NOT_FOUND, f"no share session of member {member}: open one"
            )
        if epoch == CLOSE:
            del self._sessions[key]
            return found
        if epoch != found.epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"epoch {epoch} was sent, {found.epoch} is expected"
            )
        found.epoch = 1 if epoch == _HIGHEST_EPOCH else epoch + 1
        return found

    def _check_room(self, session: ShareSession | None, topics: Sequence[Any]) -> None:
        places = {} if session is None else session.places
        new = {
            place
            for topic in topics
            for each in topic.partitions
            if (place := (topic.topic_id, each.partition_index)) not in places
        }
        if not new:
            return
        if len(places) + len(new) > MOST_OF_ONE:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"a share session has at most {MOST_OF_ONE} partitions"
            )
        if len(self._sessions) * MOST_OF_ONE > MOST_OF_ALL and self.partitions + len(new) > MOST_OF_ALL:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"this node's share sessions have {self.partitions} partitions; at most {MOST_OF_ALL} are kept",
            )

    def ended(self) -> Iterator[ShareSession]:
        """Remove and yield sessions whose connections are closed."""
        for key, session in list(self._sessions.items()):
            if session.source.closed:
                del self._sessions[key]
                yield session
