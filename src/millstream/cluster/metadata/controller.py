"""What a command and its decision are. The decisions themselves are in the files of their subjects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import MetadataRecord

Result_co = TypeVar("Result_co", covariant=True)

NewId = Callable[[], UUID]


@dataclass(frozen=True, slots=True)
class Decision(Generic[Result_co]):
    """`result` is the answer once `records` are durable; without records it changes nothing."""

    records: tuple[MetadataRecord, ...]
    result: Result_co


class Command(Protocol[Result_co]):
    def decide(self, image: MetadataImage, new_id: NewId, /) -> Decision[Result_co]:
        """Pure: the same image, command and ids always give the same decision."""
        ...
