"""Why a record cannot be used, and the limits behind it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from millstream.pipeline.declaration import DCGM, Declaration


class Reason(StrEnum):
    EMPTY = "empty"
    TOO_LARGE = "too_large"
    MALFORMED_JSON = "malformed_json"
    NOT_AN_OBJECT = "not_an_object"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    BAD_TIMESTAMP = "bad_timestamp"
    TIMESTAMP_OUT_OF_RANGE = "timestamp_out_of_range"
    UNKNOWN_METRIC = "unknown_metric"
    VALUE_OUT_OF_RANGE = "value_out_of_range"
    REJECTED_BY_STORE = "rejected_by_store"


class Verdict(StrEnum):
    """What becomes of a record: stored, dropped because DCGM had no value, or sent to the dead letters."""

    VALID = "valid"
    SENTINEL = "sentinel"
    BAD = "bad"


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """What a record may be. The future begins at the record's own time in the log, not at the reader's clock, so a
    record is judged the same whenever it is read."""

    max_record_bytes: int = 512 * 1024
    earliest: datetime = datetime(2000, 1, 1, tzinfo=UTC)
    max_ahead: timedelta = timedelta(days=1)
    declaration: Declaration = DCGM
