"""Nodes that wait to hear which of their sessions were taken over: one waits for all of them."""

from millstream.coordinator.mqtt_sessions.requests import Attended

# A node that is not heard of hears of all its sessions when it asks by `Confirm`.
_MOST_EVENTS = 10_000

Answers = list[tuple[int, Attended]]


class _Node:
    __slots__ = ("events", "last_event", "token")

    def __init__(self) -> None:
        self.events: dict[int, tuple[str, int]] = {}
        self.last_event = 0
        self.token: int | None = None


class Attendance:
    """All of it is forgotten with its machine; `incarnation` shows that."""

    def __init__(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._nodes: dict[str, _Node] = {}

    def displace(self, name: str, client_id: str, epoch: int) -> Answers:
        """The connection of that epoch is no longer the owner; the node is answered, if it waits for that."""
        node = self._nodes.setdefault(name, _Node())
        node.last_event += 1
        node.events[node.last_event] = (client_id, epoch)
        if len(node.events) > _MOST_EVENTS:
            del node.events[next(iter(node.events))]
        return self._answer(node)

    def attend(self, name: str, after_event: int, token: int) -> Answers:
        """Answered at once if there is news; one that waited before is not needed any more."""
        node = self._nodes.setdefault(name, _Node())
        for number in [number for number in node.events if number <= after_event]:
            del node.events[number]
        answers = self._answer(node)
        node.token = token
        return answers + self._answer(node) if node.events else answers

    def hurry(self, name: str) -> Answers:
        """It has waited long enough."""
        node = self._nodes.get(name)
        return [] if node is None else self._answer(node)

    def _answer(self, node: _Node) -> Answers:
        if node.token is None:
            return []
        token, node.token = node.token, None
        return [(token, Attended(self._incarnation, node.last_event, tuple(node.events.values())))]
