"""`millstream produce`: lines of text or JSON into a topic."""

import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import output
from millstream.cli.errors import CommandError, ExitCode, UsageError, kafka_failure, print_error
from millstream.cli.messages import Headers, MessageFormatError, OutgoingMessage, from_json_line
from millstream.cli.options import AsJson, parse_pairs
from millstream.cli.target import Target, on_cluster

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

# librdkafka's own limit, set high, because the topic's max.message.bytes is the limit that matters.
MAX_REQUEST_BYTES = 100 * 1024 * 1024
ERRORS_SHOWN = 5


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@on_cluster
def command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to write to.", show_default=False)],
    target: Target,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="File to read; standard input without.", show_default=False),
    ] = None,
    message: Annotated[
        list[str] | None, typer.Option("--message", "-m", help="Send this text instead; repeatable.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every message.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", help=r"Split each line into key and value here (\t for a tab)."
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="K=V", help="Header of every message; repeatable."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Write to this partition only.")
    ] = None,
    acks: Annotated[Acks, typer.Option("--acks", help="Replicas that must have a message.")] = Acks.ALL,
    compression: Annotated[
        Codec, typer.Option("--compression", "-z", help="Codec of the batches.")
    ] = Codec.NONE,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="At most this many messages a second.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds a message may wait for its acknowledgement.")
    ] = 30.0,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Each line is a JSON object as `consume --json` prints it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write messages to a topic: one for each line of standard input, of a file, or given with --message.

    \b
    Examples:
      echo hello | millstream produce greetings
      millstream produce events events.jsonl --compression zstd
      millstream produce users --key-separator : --message 'ann:{"age": 7}'
      millstream consume events --json | millstream produce copy --json-lines
    """
    if json_lines and (key is not None or key_separator is not None):
        raise UsageError("--json-lines takes the key from each line; leave out --key and --key-separator")
    if message and file is not None:
        raise UsageError("give either --message or a file, not both")
    headers = tuple((name, value.encode()) for name, value in parse_pairs(header or (), "--header").items())
    separator = key_separator.replace("\\t", "\t").encode() if key_separator is not None else None
    if separator == b"":
        raise UsageError("--key-separator is empty")
    constant_key = key.encode() if key is not None else None

    def outgoing(line: bytes) -> OutgoingMessage:
        if json_lines:
            return from_json_line(line)
        return split_line(line, constant_key, separator)

    client = target.producer(
        **{
            "acks": acks.value,
            "compression.type": compression.value,
            "linger.ms": 5,
            "message.timeout.ms": int(timeout * 1000),
            "message.max.bytes": MAX_REQUEST_BYTES,
        }
    )
    sending = Sending(client, topic, target.bootstrap, headers, partition)
    try:
        for number, line in enumerate(lines_of(message, file), 1):
            try:
                sending.send(outgoing(line))
            except MessageFormatError as error:
                raise CommandError(
                    f"line {number}: {error}; {sending.accepted} messages before it were sent"
                ) from error
            if rate is not None:
                sending.wait_until(number / rate)
    finally:
        sending.finish(timeout)
    sending.report(as_json)


def lines_of(messages: list[str] | None, file: Path | None) -> Iterator[bytes]:
    if messages:
        yield from (message.encode("utf-8", "surrogateescape") for message in messages)
    elif file is None or str(file) == "-":
        if sys.stdin.isatty():
            output.note("one message to a line; Ctrl-D ends")
        yield from (line.removesuffix(b"\n") for line in sys.stdin.buffer)
    else:
        with file.open("rb") as stream:
            yield from (line.removesuffix(b"\n") for line in stream)


def split_line(line: bytes, key: bytes | None, separator: bytes | None) -> OutgoingMessage:
    """A line without the separator is only a value, and takes the common key, if there is one."""
    if separator is not None and separator in line:
        own_key, _, value = line.partition(separator)
        return OutgoingMessage(value=value, key=own_key)
    return OutgoingMessage(value=line, key=key)


class Sending:
    """One run of the producer: counts messages queued, acknowledged and refused."""

    def __init__(
        self, client: Any, topic: str, bootstrap: str, headers: Headers, partition: int | None
    ) -> None:
        self.client = client
        self.topic = topic
        self.bootstrap = bootstrap
        self.headers = headers
        self.partition = partition
        self.accepted = 0
        self.acknowledged = 0
        self.failed = 0
        self.has_timed_out = False
        # First and last offset by partition; -1 if no acknowledgements were requested.
        self.stored: dict[int, tuple[int, int]] = {}
        self.started = time.monotonic()
        self.progress = output.Progress("messages")

    def send(self, message: OutgoingMessage) -> None:
        from confluent_kafka import KafkaException

        optional: dict[str, Any] = {}
        partition = self.partition if self.partition is not None else message.partition
        if partition is not None:
            optional["partition"] = partition
        if message.timestamp_ms is not None:
            optional["timestamp"] = message.timestamp_ms
        headers = [*self.headers, *message.headers]
        while True:
            try:
                self.client.produce(
                    self.topic,
                    value=message.value,
                    key=message.key,
                    headers=headers or None,
                    on_delivery=self.delivered,
                    **optional,
                )
                break
            except BufferError:  # the local queue is full: wait for acknowledgements to make room
                self.client.poll(0.1)
            except KafkaException as error:
                self.refused(error.args[0])
                break
        self.accepted += 1
        self.client.poll(0)
        self.progress.update(self.acknowledged)

    def wait_until(self, elapsed_s: float) -> None:
        while (remaining := self.started + elapsed_s - time.monotonic()) > 0:
            self.client.poll(min(remaining, 0.1))
            self.progress.update(self.acknowledged)

    def delivered(self, error: "KafkaError | None", message: "Message[Any, Any]") -> None:
        if error is None:
            self.acknowledged += 1
            partition, offset = message.partition() or 0, message.offset()
            offset = -1 if offset is None or offset < 0 else offset
            first, last = self.stored.get(partition, (offset, offset))
            self.stored[partition] = min(first, offset), max(last, offset)
        else:
            self.refused(error)

    def refused(self, error: "KafkaError") -> None:
        from confluent_kafka import KafkaError as Codes

        self.failed += 1
        self.has_timed_out |= error.code() in {Codes._MSG_TIMED_OUT, Codes.REQUEST_TIMED_OUT}  # noqa: SLF001
        if self.failed <= ERRORS_SHOWN:
            self.progress.clear()
            print_error(
                str(kafka_failure(f"a message to {self.topic!r} was not acknowledged", error, self.bootstrap))
            )

    def finish(self, timeout_s: float) -> None:
        """Wait for pending messages; librdkafka itself gives up on a message after its timeout."""
        deadline = time.monotonic() + timeout_s + 5
        while len(self.client) and time.monotonic() < deadline:
            self.client.flush(0.2)
            self.progress.update(self.acknowledged)
        self.progress.clear()
        self.has_timed_out |= bool(len(self.client))
        self.failed += len(self.client)

    def report(self, as_json: bool) -> None:
        seconds = time.monotonic() - self.started
        if as_json:
            counts = {"topic": self.topic, "produced": self.acknowledged, "failed": self.failed}
            stored = [
                {"partition": each, "first_offset": first, "last_offset": last}
                for each, (first, last) in sorted(self.stored.items())
            ]
            output.json_document(counts | {"seconds": round(seconds, 3), "stored": stored})
        elif sys.stderr.isatty():
            places = "".join(
                f"; {self.topic}:{each} at offset {first}" + (f" to {last}" if last > first else "")
                for each, (first, last) in sorted(self.stored.items())
            )
            output.note(f"{self.acknowledged:,} messages in {seconds:.1f} s{places}")
        if self.failed:
            # A message that timed out may be in a leader's log; a refused message is not.
            print_error(
                f"{self.failed} of {self.accepted} messages to {self.topic!r} were not acknowledged; some may be"
                " stored all the same, and `millstream cluster status` tells whether enough nodes are there"
                if self.has_timed_out
                else f"{self.failed} of {self.accepted} messages to {self.topic!r} were not stored"
            )
            raise typer.Exit(ExitCode.FAILURE)
