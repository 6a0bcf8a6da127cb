"""Names and small files of a partition's directory.

<data>/topics/<topic>/partition-<n>/
    <20-digit base offset>.log, .index, .timeindex      the segments
    <20-digit offset>.snapshot                          producers as of that offset
    leader-epoch-checkpoint                             which leader wrote what
    log-start-offset-checkpoint                         present once records were deleted
    truncation-checkpoint                               present after the end was cut, until a checkpoint covers the cut
    recovery-cut                                        present after recovery cut the end, until the log caught up
    <20-digit base offset>.gaps                         the segment came from a leader that had compacted it: where
                                                        the last gap ends, empty if that is not known
    <20-digit base offset>.dropped                      the segment was deleted while there was no room to write the
                                                        new start; empty, present until the start is written
    partition.metadata                                  the directory's identity, see storage/identity.py
"""

from millstream.protocol.checksum import crc32c
from millstream.protocol.errors import ErrorCode, KafkaError

TOPICS = "topics"
EPOCHS_FILE = "leader-epoch-checkpoint"
START_OFFSET_FILE = "log-start-offset-checkpoint"
TRUNCATION_FILE = "truncation-checkpoint"
CUT_FILE = "recovery-cut"
IDENTITY_FILE = "partition.metadata"
LOG_SUFFIX = ".log"
SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".gaps")
SNAPSHOT_SUFFIX = ".snapshot"
GAPS_SUFFIX = ".gaps"
DROPPED_SUFFIX = ".dropped"
TEMPORARY_SUFFIX = ".tmp"
CUT_NOTE = b"Recovery cut the end of this log; it is in doubt until it has caught up with a leader.\n"
_OFFSET_DIGITS = 20
_PARTITION = "partition-"


def partition_directory(data_dir: str, topic: str, index: int) -> str:
    return f"{data_dir}/{TOPICS}/{topic}/{_PARTITION}{index}"


def is_partition(name: str) -> bool:
    """Whether a directory in a topic's is named as a partition's."""
    return name.startswith(_PARTITION)


def parent_directories(directory: str) -> list[str]:
    """The directories whose entries change when `directory` is created: its parents up to the data directory."""
    topic = directory.rpartition("/")[0]
    topics = topic.rpartition("/")[0]
    return [directory, topic, topics, topics.rpartition("/")[0]]


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}{SNAPSHOT_SUFFIX}"


def offset_in(name: str, suffix: str) -> int | None:
    """The offset in a file's name; None for foreign files."""
    digits = name.removesuffix(suffix)
    is_ours = len(digits) == _OFFSET_DIGITS and digits + suffix == name
    return int(digits) if is_ours and digits.isascii() and digits.isdecimal() else None


def start_after_dropped(names: list[str], bases: list[int], start: int) -> int:
    """The log start after segments were deleted, to make room, before the new start could be written.

    The last deleted segment has left a `.dropped` file. Earlier ones may reappear after a loss of power.
    """
    last = max((each for name in names if (each := offset_in(name, DROPPED_SUFFIX)) is not None), default=-1)
    if last < 0 or last in bases:
        return start
    return max(start, next((base for base in bases if base > last), start))


def with_checksum(text: str) -> bytes:
    """Add a checksum: a flipped bit in a number would only give another number."""
    return f"{text}crc {crc32c(text.encode()):08x}\n".encode()


def without_checksum(data: bytes) -> str:
    """The text; ValueError if its checksum is wrong. Files of earlier versions have no checksum."""
    text, mark, crc = data.decode().rpartition("crc ")
    if not mark:
        return crc
    if crc != f"{crc32c(text.encode()):08x}\n":
        raise ValueError("its checksum does not match")
    return text


def encode_start_offset(offset: int) -> bytes:
    return with_checksum(f"0\n{offset}\n")


def encode_gap(end_offset: int) -> bytes:
    return with_checksum(f"{end_offset}\n")


def decode_gap(data: bytes) -> int | None:
    """Where the last gap ends; None if that is not known."""
    try:
        return int(without_checksum(data))
    except ValueError:
        return None


def decode_start_offset(data: bytes, path: str) -> int:
    try:
        version, offset, *_ = without_checksum(data).split("\n")
        if version != "0":
            raise ValueError(f"version {version} is unknown")
        if int(offset) < 0:
            raise ValueError(f"offset {offset} is negative")
        return int(offset)
    except ValueError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be read: {error}") from None
