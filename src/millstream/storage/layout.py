"""Names and small files of a partition's directory.

<data>/topics/<topic>/partition-<n>/
    <20-digit base offset>.log, .index, .timeindex      the segments
    <20-digit offset>.snapshot                          producers as of that offset
    leader-epoch-checkpoint                             which leader wrote what
    log-start-offset-checkpoint                         present once records were deleted
    truncation-checkpoint                               present after the end was cut, until a checkpoint knows of it
    recovery-cut                                        present after recovery cut the end, until it has caught up
    <20-digit base offset>.gaps                         the segment came from a leader that had compacted it
    partition.metadata                                  the topic's id: a topic made anew under an old name is another
"""

import uuid

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
TEMPORARY_SUFFIX = ".tmp"


def partition_directory(data_dir: str, topic: str, index: int) -> str:
    return f"{data_dir}/{TOPICS}/{topic}/partition-{index}"


def parent_directories(directory: str) -> list[str]:
    """The directories whose entries change when `directory` is made: its parents up to the data directory."""
    topic = directory.rpartition("/")[0]
    topics = topic.rpartition("/")[0]
    return [directory, topic, topics, topics.rpartition("/")[0]]


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}{SNAPSHOT_SUFFIX}"


def encode_identity(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid.UUID(bytes=topic_id)}\n".encode()


def decode_identity(data: bytes) -> bytes | None:
    for line in data.decode(errors="replace").splitlines():
        if line.startswith("topic_id: "):
            try:
                return uuid.UUID(line.removeprefix("topic_id: ")).bytes
            except ValueError:
                return None
    return None


def encode_start_offset(offset: int) -> bytes:
    return f"0\n{offset}\n".encode()


def decode_start_offset(data: bytes, path: str) -> int:
    try:
        version, offset, *_ = data.decode().split("\n")
        if version != "0":
            raise ValueError(f"version {version}")
        return int(offset)
    except ValueError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be read: {error}") from None
