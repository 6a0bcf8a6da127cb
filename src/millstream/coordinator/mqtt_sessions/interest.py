"""The topics that a coordinator's sessions subscribe to, so that publishers learn when there are none."""

from collections import Counter
from collections.abc import Mapping

from millstream.coordinator.mqtt_sessions.records import StoredSession, StoredSubscription
from millstream.protocol.mqtt.topic_tree import TopicTree
from millstream.protocol.mqtt.topics import shared


class Interest:
    """Created at the first query, and updated with all changes from then on.

    Only the door of its connection knows the subscriptions of a session that ends with the connection; here such
    sessions are only counted, by door.
    """

    def __init__(self) -> None:
        self._filters: TopicTree[tuple[str, str], None] = TopicTree()
        self._unsaved_sessions: Counter[str] = Counter()

    def add(
        self, client_id: str, stored: StoredSession, subscriptions: Mapping[str, StoredSubscription]
    ) -> None:
        self.session_changed(None, stored)
        for text in subscriptions:
            self.subscribed(client_id, text)

    def session_changed(self, before: StoredSession | None, after: StoredSession | None) -> None:
        for stored, change in ((before, -1), (after, 1)):
            if stored is not None and stored.node and not stored.expiry_s:
                self._unsaved_sessions[stored.node] += change

    def subscribed(self, client_id: str, text: str) -> None:
        self._filters.put(_plain(text), (client_id, text), None)

    def unsubscribed(self, client_id: str, text: str) -> None:
        self._filters.remove(_plain(text), (client_id, text))

    def may_want(self, topic: str, door: str) -> bool:
        """Whether a session may have subscribed to the topic, apart from subscriptions that `door` knows itself."""
        elsewhere = any(count for node, count in self._unsaved_sessions.items() if node != door)
        return elsewhere or any(self._filters.match(topic))


def _plain(text: str) -> str:
    share = shared(text)
    return text if share is None else share.filter
