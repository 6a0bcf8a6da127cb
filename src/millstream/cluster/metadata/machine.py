"""The quorum's state machine: applies committed entries to the image and notifies subscribers."""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from millstream.cluster.metadata.difference import difference
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import MetadataRecord, decode_records, encode_records
from millstream.cluster.raft.entries import Entry
from millstream.observability.logs import get_logger

Records = tuple[MetadataRecord, ...]
Subscriber = Callable[[MetadataImage, MetadataImage, Records], None]

_log = get_logger("millstream.cluster.metadata")


class UnknownRecords(Exception):
    """The log holds records that this version does not know, so the node must not continue."""


class _Foreseen(msgspec.Struct, frozen=True):
    data: bytes
    records: Records
    image: MetadataImage


class MetadataMachine:
    """`image` is committed. A leader decides on `latest`, which also has its uncommitted proposals."""

    __slots__ = ("_foreseen", "_subscribers", "image")

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._foreseen: deque[_Foreseen] = deque()
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    @property
    def latest(self) -> MetadataImage:
        return self._foreseen[-1].image if self._foreseen else self.image

    def foresee(self, records: Records) -> bytes:
        """Apply the records to `latest` ahead of time; returns the bytes to propose, which `apply` will recognise."""
        data = encode_records(records)
        self._foreseen.append(_Foreseen(data, records, self.latest.apply(records)))
        return data

    def take_back(self) -> None:
        """Undo the last `foresee`, whose records were not proposed; earlier ones are still on their way."""
        self._foreseen.pop()

    def forget_foreseen(self) -> None:
        """Reset `latest` to the committed image, because proposals may be lost."""
        self._foreseen.clear()

    def apply(self, entries: Sequence[Entry]) -> list[None]:
        own = self._take_foreseen(entries)
        if own:
            records = tuple(record for each in own for record in each.records)
            image = own[-1].image
        else:
            records = tuple(record for entry in entries for record in _decode(entry.data))
            image = self.image.apply(records)
        self._publish(image, records)
        return [None] * len(entries)

    def restore(self, data: bytes) -> None:
        """Replace the image by a snapshot; subscribers get the difference."""
        self.forget_foreseen()
        image = MetadataImage().apply(_decode(data) if data else ())
        records = tuple(difference(self.image, image))
        if records:
            self._publish(image, records)

    def snapshot(self) -> Callable[[], bytes]:
        image = self.image
        return lambda: encode_records(list(difference(MetadataImage(), image)))

    def _take_foreseen(self, entries: Sequence[Entry]) -> list[_Foreseen]:
        """The own proposals that match these entries; empty if they are another leader's."""
        foreseen = self._foreseen
        if len(foreseen) >= len(entries) and all(
            each.data is entry.data for each, entry in zip(foreseen, entries, strict=False)
        ):
            return [foreseen.popleft() for _ in entries]
        foreseen.clear()
        return []

    def _publish(self, image: MetadataImage, records: Records) -> None:
        old, self.image = self.image, image
        for subscriber in self._subscribers:
            try:
                subscriber(old, image, records)
            except Exception:  # noqa: BLE001
                # The change is committed: other subscribers and the submitters must still be notified.
                _log.exception("metadata subscriber failed", records=len(records))


def _decode(data: bytes) -> list[MetadataRecord]:
    try:
        return decode_records(data)
    except msgspec.MsgspecError as error:
        raise UnknownRecords(
            f"the metadata log holds records that this version cannot read: {error};"
            " they were written by a newer version: start that one"
        ) from error
