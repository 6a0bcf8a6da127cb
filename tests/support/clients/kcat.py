"""Debian's kcat: an old librdkafka, seen through its command line."""

import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence

from support.clients.message import LARGEST_REQUEST_BYTES, PATIENCE_S, Headers, Message, ProduceFailed, Stored

AVAILABLE = shutil.which("kcat") is not None

# Lengths come first, so that keys and values may hold any bytes.
_FORMAT = r"%o %T %K %S %h\n%k%s"
_HEAD = re.compile(rb"(\d+) (-?\d+) (-?\d+) (-?\d+) ?(.*)\n")
_CODES = {
    "Broker: Message size too large": "MESSAGE_TOO_LARGE",
    "Broker: Broker failed to validate record": "INVALID_RECORD",
    "Broker: Unknown topic or partition": "UNKNOWN_TOPIC_OR_PARTITION",
}
_MESSAGE_END, _KEY_END = b"<|end|>", b"<|key|>"


class KcatClient:
    """Writes no timestamps, no null header values, and no empty key beside a null one."""

    name = "kcat"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, *arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            ["kcat", "-b", self.bootstrap, *arguments],
            input=stdin,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def write(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
        partition: int = 0,
    ) -> list[int]:
        """One run for each stretch of messages with the same headers; kcat does not tell offsets."""
        options = ["-z", codec, "-X", f"acks={acks}", "-p", str(partition)]
        options += ["-X", f"message.max.bytes={LARGEST_REQUEST_BYTES}", "-X", "message.timeout.ms=20000"]
        for headers, stretch in itertools.groupby(messages, lambda message: message.headers):
            self._write_stretch(topic, list(stretch), headers, options)
        return [-1] * len(messages)

    def _write_stretch(
        self, topic: str, messages: Sequence[Message], headers: Headers, options: list[str]
    ) -> None:
        header_options = [f"-H{name}={(value or b'').decode()}" for name, value in headers]
        # With -Z what is empty becomes null, so a stretch has either empty or null values.
        nulls = ["-Z"] if any(message.value is None for message in messages) else []
        lines = [
            (b"" if each.key is None else each.key + _KEY_END) + (each.value or b"") + _MESSAGE_END
            for each in messages
        ]
        result = self.run(
            "-P", "-t", topic, *options, *header_options, *nulls,
            "-D", _MESSAGE_END.decode(), "-K", _KEY_END.decode(),
            stdin=b"".join(lines),
        )  # fmt: skip
        errors = result.stderr.decode()
        for text, code in _CODES.items():
            if text in errors:
                raise ProduceFailed(code)
        assert result.returncode == 0, errors

    def read(self, topic: str, *, partition: int = 0, start: int | None = None) -> list[Stored]:
        position = "beginning" if start is None else str(start)
        result = self.run(
            "-C", "-e", "-q", "-t", topic, "-p", str(partition), "-o", position, "-f", _FORMAT,
            "-X", "fetch.wait.max.ms=20",
        )  # fmt: skip
        assert result.returncode == 0, result.stderr.decode()
        return list(_parse(result.stdout))

    def close(self) -> None:
        """Every call is a process of its own."""


def _parse(output: bytes) -> Iterator[Stored]:
    position = 0
    while position < len(output):
        head = _HEAD.match(output, position)
        assert head is not None, f"not a message: {output[position : position + 80]!r}"
        offset, timestamp_ms, key_size, value_size = (int(head[number]) for number in range(1, 5))
        position = head.end()
        key = output[position : position + key_size] if key_size >= 0 else None
        position += max(key_size, 0)
        value = output[position : position + value_size] if value_size >= 0 else None
        position += max(value_size, 0)
        yield Stored(offset, timestamp_ms, key, value, tuple(_headers(head[5])))


def _headers(text: bytes) -> Iterator[tuple[str, bytes | None]]:
    for pair in text.split(b",") if text else ():
        name, _, value = pair.partition(b"=")
        yield name.decode(), None if value == b"NULL" else value
