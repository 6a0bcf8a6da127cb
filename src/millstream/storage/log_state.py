"""The initial state of a log when it is opened: empty, or from the checkpoint or recovery."""

import msgspec

from millstream.storage.identity import NO_INCARNATION
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.producer_state import ProducerStates
from millstream.storage.segment import Segment
from millstream.storage.truncation import TruncationMarker


class LogState(msgspec.Struct):
    segments: list[Segment] = msgspec.field(default_factory=list)
    log_start_offset: int = 0
    flushed_offset: int = 0
    flushed_position: tuple[int, int] = (0, 0)
    cleaned_offset: int = 0
    checkpointed_base: int = 0
    epochs: LeaderEpochs = msgspec.field(default_factory=LeaderEpochs)
    producers: ProducerStates = msgspec.field(default_factory=ProducerStates)
    unwritten: dict[str, bytes] = msgspec.field(default_factory=dict)
    """Small files that the next flush writes."""
    truncations: int = 0
    is_doubtful: bool = False
    incarnation: bytes = NO_INCARNATION
    rewrites: int = 0
    rewritten: dict[int, int] = msgspec.field(default_factory=dict)
    acknowledges_early: bool = False
    damaged: set[int] = msgspec.field(default_factory=set)
    marker: TruncationMarker | None = None
    """Cuts that the checkpoint on disk does not cover."""
