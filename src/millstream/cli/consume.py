"""`millstream consume`: messages of a topic to standard output, without joining a consumer group."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import output
from millstream.cli.errors import CommandError, NoAnswer, UsageError, kafka_failure
from millstream.cli.messages import IncomingMessage, MessageFormatError, compile_format, to_json_line
from millstream.cli.start_position import FORMS, StartKind, StartPosition, parse_start
from millstream.cli.target import REQUEST_TIMEOUT_S, Target, on_cluster

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

POLL_S = 0.2
BATCH = 1000
DEFAULT_FORMAT = "%s\\n"
# Without --follow an answer is due; this long without one means that the cluster has gone.
SILENCE_LIMIT_S = 30.0
# How long a partition may be without a leader, as it is during an election.
LEADER_LIMIT_S = 5.0


@on_cluster
def command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to read.", show_default=False)],
    target: Target,
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help=f"Where to start: {FORMS}.")
    ] = "beginning",
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Read this partition only; repeatable."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many messages.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new messages at the end; implied by --from end.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0.1, help="Stop after this many seconds without a message."),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="TEXT",
            help="What to print: %s value, %k key, %h headers, %t topic, %p partition, %o offset, "
            "%T timestamp (ms), %S and %K lengths (-1 for null), \\n \\t \\xHH.",
        ),
    ] = DEFAULT_FORMAT,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Read messages of a topic. Ends where the topic ended when the command began, unless told to follow.

    \b
    Examples:
      millstream consume events
      millstream consume events --from -10 --format '%p:%o %k = %s\\n'
      millstream consume events --from 2026-01-31T12:00:00Z --json
      millstream consume events --follow --timeout 60
    """
    position = parse_start(start)
    if as_json and format_ != DEFAULT_FORMAT:
        raise UsageError("give either --json or --format, not both")
    try:
        render = to_json_line if as_json else compile_format(format_)
    except MessageFormatError as error:
        raise UsageError(f"--format {format_!r}: {error}") from error

    client = target.consumer(**{"enable.partition.eof": True, "auto.offset.reset": "earliest"})
    reading = Reading(client, topic, target.bootstrap, render, count)
    try:
        reading.start(position, partition or None, bounded=not follow and position.kind is not StartKind.END)
        reading.run(timeout)
    finally:
        reading.progress.clear()
        client.close()


class Reading:
    """One run of the consumer: which partitions are still read, and up to where."""

    def __init__(
        self,
        client: "Consumer",
        topic: str,
        bootstrap: str,
        render: Callable[[IncomingMessage], bytes],
        count: int | None,
    ) -> None:
        self.client = client
        self.topic = topic
        self.bootstrap = bootstrap
        self.render = render
        self.remaining = count
        self.bounded = False
        self.shown = 0
        # On a terminal the messages themselves show how far it is.
        self.progress = output.Progress("messages", visible=not sys.stdout.isatty())
        # End offset, as it was at the start, of every partition that has not been read up to there.
        self.unread: dict[int, int] = {}

    def start(self, position: StartPosition, wanted: list[int] | None, *, bounded: bool) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        self.bounded = bounded
        try:
            partitions = self.partitions(wanted)
            by_time = self.offsets_by_time(partitions, position)
            assignment = []
            for index in partitions:
                low, high = self.client.get_watermark_offsets(
                    TopicPartition(self.topic, index), timeout=REQUEST_TIMEOUT_S
                )
                first = position.offset_in(low, high, by_time.get(index))
                if not bounded or first < high:
                    self.unread[index] = high
                    assignment.append(TopicPartition(self.topic, index, first))
            self.client.assign(assignment)
        except KafkaException as error:
            raise kafka_failure(f"cannot read topic {self.topic!r}", error.args[0], self.bootstrap) from error

    def partitions(self, wanted: list[int] | None) -> list[int]:
        """Those that are wanted, or all, when each has a leader."""
        deadline = time.monotonic() + LEADER_LIMIT_S
        while True:
            leaders = self.leaders()
            missing = set(wanted or ()) - set(leaders)
            if missing:
                raise CommandError(
                    f"topic {self.topic!r} has no partition {min(missing)}; it has {len(leaders)}, from 0"
                )
            chosen = sorted(set(wanted) if wanted else leaders)
            leaderless = [index for index in chosen if leaders[index] < 0]
            if not leaderless:
                return chosen
            if time.monotonic() > deadline:
                # An election takes less: those who keep it are away.
                raise NoAnswer(
                    f"cannot read topic {self.topic!r}", f"partition {leaderless[0]} has no leader"
                )
            time.sleep(POLL_S)

    def leaders(self) -> dict[int, int]:
        """Who leads each partition of the topic; -1 where nobody does."""
        from confluent_kafka import KafkaError

        metadata = self.client.list_topics(self.topic, timeout=REQUEST_TIMEOUT_S).topics[self.topic]
        if metadata.error is None:
            return {index: each.leader for index, each in metadata.partitions.items()}
        if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise CommandError(
                f"there is no topic {self.topic!r} at {self.bootstrap}; see `millstream topic list`"
            )
        raise kafka_failure(f"cannot read topic {self.topic!r}", metadata.error, self.bootstrap)

    def offsets_by_time(self, partitions: list[int], position: StartPosition) -> dict[int, int]:
        from confluent_kafka import TopicPartition

        if position.kind is not StartKind.TIMESTAMP:
            return {}
        asked = [TopicPartition(self.topic, index, position.number) for index in partitions]
        found = self.client.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
        # An offset below 0 says that no message is that young.
        return {entry.partition: entry.offset for entry in found if entry.offset >= 0}

    def run(self, timeout_s: float | None) -> None:
        last_message = time.monotonic()
        while not self.finished():
            first = self.client.poll(POLL_S)
            if first is not None:
                last_message = time.monotonic()
                self.take([first, *self.client.consume(BATCH, 0)])
                output.flush()
                self.progress.update(self.shown)
                continue
            idle_s = time.monotonic() - last_message
            if timeout_s is not None and idle_s >= timeout_s:
                self.end_idle(timeout_s)
                return
            if self.bounded and timeout_s is None and idle_s >= SILENCE_LIMIT_S:
                raise NoAnswer(f"cannot read topic {self.topic!r}", f"no answer for {SILENCE_LIMIT_S:.0f} s")

    def finished(self) -> bool:
        return self.remaining == 0 or (self.bounded and not self.unread)

    def end_idle(self, timeout_s: float) -> None:
        if self.bounded:
            raise CommandError(
                f"no message for {timeout_s:g} s before the end of {self.topic!r};"
                " a longer --timeout waits longer"
            )

    def take(self, messages: "list[Message[Any, Any]]") -> None:
        for message in messages:
            if self.finished():
                return
            if message.error() is not None:
                self.take_event(message)
                continue
            incoming = incoming_message(message)
            if self.bounded and not self.still_wanted(incoming):
                continue
            output.write(self.render(incoming))
            self.shown += 1
            if self.remaining is not None:
                self.remaining -= 1

    def still_wanted(self, message: IncomingMessage) -> bool:
        """Whether a message lies before the end; also notes when it is the last such one."""
        end = self.unread.get(message.partition)
        if end is None:
            return False
        if message.offset + 1 >= end:
            del self.unread[message.partition]
        return message.offset < end

    def take_event(self, message: "Message[Any, Any]") -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            self.unread.pop(message.partition() or 0, None)
        elif not error.retriable() and error.code() not in {
            KafkaError._TRANSPORT,  # noqa: SLF001 - librdkafka connects again by itself
            KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        }:
            raise kafka_failure(f"cannot read topic {self.topic!r}", error, self.bootstrap)


def incoming_message(message: "Message[Any, Any]") -> IncomingMessage:
    _, timestamp_ms = message.timestamp()
    headers: Any = message.headers() or ()  # always pairs on this side; the type allows what produce takes
    return IncomingMessage(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=timestamp_ms,
        key=message.key(),
        value=message.value(),
        headers=tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers),
    )
