"""The identity of a partition's directory: the file partition.metadata.

version: 0
topic_id: <uuid>
incarnation: <uuid>
rewrites: <number>
acknowledges: early
rewritten: <base offset> <number>
...
checksum: <CRC-32C of the lines above, in hexadecimal>

Kafka reads only the first two lines. A topic recreated under an old name has another id. A partition that was moved
away and came back has the same id, but another incarnation: a checkpoint is valid only for the one that it described.
In the same way a segment whose file was replaced (compaction, repair) has a higher number than the checkpoint knows,
until a new checkpoint describes the new file. The number is on disk before the file is in place. Merged segments share
one number, and only the first of them has a file.

The line `acknowledges: early` is there while records are acknowledged before they are flushed. It is on disk before the
first of them, and is removed after the last of them was flushed.

Directories of earlier versions end after the topic's id.
"""

import uuid
from collections.abc import Mapping

import msgspec

from millstream.protocol.checksum import crc32c
from millstream.runtime.disk import Disk
from millstream.storage.layout import IDENTITY_FILE

NO_INCARNATION = b""


class Identity(msgspec.Struct, frozen=True):
    topic_id: bytes
    incarnation: bytes = NO_INCARNATION
    rewrites: int = 0
    """The highest number given to a segment."""
    rewritten: Mapping[int, int] = msgspec.field(default_factory=dict[int, int])
    """By base offset: numbers of segments that the checkpoint may not know."""
    acknowledges_early: bool = False

    def encode(self) -> bytes:
        lines = ["version: 0", f"topic_id: {uuid.UUID(bytes=self.topic_id)}"]
        if self.incarnation:
            lines.append(f"incarnation: {uuid.UUID(bytes=self.incarnation)}")
            lines.append(f"rewrites: {self.rewrites}")
            if self.acknowledges_early:
                lines.append("acknowledges: early")
            lines += [f"rewritten: {base} {number}" for base, number in sorted(self.rewritten.items())]
            lines.append(f"checksum: {_checksum(lines)}")
        return ("\n".join(lines) + "\n").encode()


def decode_identity(data: bytes) -> Identity | None:
    """None when the file has no valid identity."""
    try:
        *lines, rest = data.decode().split("\n")
        fields = [line.split(": ", 1) for line in lines]
        values = {key: value for key, value in fields if key != "rewritten"}
        topic_id = _id(values["topic_id"])
        if rest:
            return None
        if "incarnation" not in values:
            return Identity(topic_id)
        if values["checksum"] != _checksum(lines[:-1]):
            return None
        rewritten: list[tuple[int, int]] = []
        for key, value in fields:
            if key == "rewritten":
                base, number = value.split()
                rewritten.append((int(base), int(number)))
        return Identity(
            topic_id,
            _id(values["incarnation"]),
            int(values["rewrites"]),
            dict(rewritten),
            values.get("acknowledges") == "early",
        )
    except (KeyError, ValueError):
        return None


def read_identity(disk: Disk, directory: str) -> Identity | None:
    """None when the file is missing or damaged."""
    path = f"{directory}/{IDENTITY_FILE}"
    try:
        return decode_identity(disk.read(path))
    except OSError:
        if disk.exists(path):
            raise
        return None


def _id(text: str) -> bytes:
    """The bytes of a UUID; uuid.UUID takes ten times as long, and a start reads the identity of every log."""
    data = bytes.fromhex(text.replace("-", ""))
    if len(data) != 16:
        raise ValueError(f"{text} is no UUID")
    return data


def _checksum(lines: list[str]) -> str:
    return f"{crc32c(chr(10).join(lines).encode()):08x}"
