"""What a command and its decision are. The decisions themselves are in the files of their subjects."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import msgspec

from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import MetadataRecord

Result_co = TypeVar("Result_co", covariant=True)

NewId = Callable[[], UUID]


class Decision(msgspec.Struct, Generic[Result_co], frozen=True):
    """`result` is the answer once `records` are durable; without records it changes nothing."""

    records: tuple[MetadataRecord, ...]
    result: Result_co


class Command(Protocol[Result_co]):
    def decide(self, image: MetadataImage, new_id: NewId, /) -> Decision[Result_co]:
        """Pure: the same image, command and ids always give the same decision."""
        ...
