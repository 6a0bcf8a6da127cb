"""Brokers that were fenced a moment ago, of whom clients hear for a while longer.

librdkafka ends what it has of a broker that Metadata leaves out. If that comes with the answer that names another
leader for what the broker led, it forgets the new leader too, and asks again only after up to a second.
"""

from collections.abc import Callable

from millstream.cluster.metadata.image import BrokerImage, MetadataImage
from millstream.cluster.metadata.machine import Records

_LISTED_SECONDS = 1.0


class Departed:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since: dict[int, float] = {}

    def follow(self, old: MetadataImage, new: MetadataImage, _records: Records) -> None:
        if old.brokers is new.brokers:
            return
        now = self._monotonic()
        for broker_id, broker in new.brokers.items():
            if not broker.is_fenced:
                self._since.pop(broker_id, None)
            elif old.is_live(broker_id):
                self._since[broker_id] = now

    def shown_with(self, image: MetadataImage) -> list[BrokerImage]:
        """The live brokers and those who were until a moment ago."""
        if not self._since:
            return image.live_brokers
        oldest = self._monotonic() - _LISTED_SECONDS
        self._since = {each: since for each, since in self._since.items() if since > oldest}
        return [
            broker
            for _, broker in sorted(image.brokers.items())
            if not broker.is_fenced or broker.broker_id in self._since
        ]
