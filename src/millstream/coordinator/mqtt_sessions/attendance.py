"""Nodes that wait for news of sessions that were taken over: one request for all sessions of a node."""

from millstream.coordinator.mqtt_sessions.requests import Attended

# A node that missed more events asks for all its sessions by `Confirm`.
_MOST_EVENTS = 10_000

Answers = list[tuple[int, Attended]]


class _Node:
    __slots__ = ("events", "last_event", "token")

    def __init__(self) -> None:
        self.events: dict[int, tuple[str, int]] = {}
        self.last_event = 0
        self.token: int | None = None


class Attendance:
    """Lost with its machine; nodes notice by the `incarnation`."""

    def __init__(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._nodes: dict[str, _Node] = {}

    def displace(self, name: str, client_id: str, epoch: int) -> Answers:
        """The connection of that epoch is no longer the owner: answer its node, if it waits."""
        node = self._nodes.setdefault(name, _Node())
        node.last_event += 1
        node.events[node.last_event] = (client_id, epoch)
        if len(node.events) > _MOST_EVENTS:
            del node.events[next(iter(node.events))]
        return self._answer(node)

    def attend(self, name: str, after_event: int, token: int) -> Answers:
        """Answer at once if there is news; a request that was waiting before is answered too."""
        node = self._nodes.setdefault(name, _Node())
        for number in [number for number in node.events if number <= after_event]:
            del node.events[number]
        answers = self._answer(node)
        node.token = token
        return answers + self._answer(node) if node.events else answers

    def hurry(self, name: str) -> Answers:
        """Answer the node's request, which has waited long enough."""
        node = self._nodes.get(name)
        return [] if node is None else self._answer(node)

    def _answer(self, node: _Node) -> Answers:
        if node.token is None:
            return []
        token, node.token = node.token, None
        return [(token, Attended(self._incarnation, node.last_event, tuple(node.events.values())))]
