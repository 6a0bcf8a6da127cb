"""`millstream consume`: messages of topics to standard output, by itself or as a member of a consumer group."""

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import output
from millstream.cli.errors import CommandError, NoAnswer, UsageError, kafka_failure
from millstream.cli.messages import IncomingMessage, MessageFormatError, compile_format, to_json_line
from millstream.cli.options import parse_moment_ms
from millstream.cli.target import Target, on_cluster

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from confluent_kafka import TopicPartition as Place

    from millstream.client import Admin, TopicPartition

FORMS = "beginning, end, an offset, -N (the last N), a time such as 2026-01-31T12:00:00Z, or @MILLISECONDS"


class StartKind(Enum):
    BEGINNING = auto()
    END = auto()
    OFFSET = auto()
    LAST = auto()
    TIMESTAMP = auto()


@dataclass(frozen=True, slots=True)
class StartPosition:
    kind: StartKind
    number: int = 0

    def offset_in(self, start: int, end: int, by_time: int | None) -> int:
        """The first offset to read in a partition with start <= offset < end. `by_time` is the first offset at or after
        a timestamp, if there is one."""
        match self.kind:
            case StartKind.BEGINNING:
                return start
            case StartKind.END:
                return end
            case StartKind.OFFSET:
                return min(max(self.number, start), end)
            case StartKind.LAST:
                return max(end - self.number, start)
            case StartKind.TIMESTAMP:
                return end if by_time is None else max(by_time, start)


NAMES: Mapping[str, StartPosition] = {
    "beginning": StartPosition(StartKind.BEGINNING),
    "end": StartPosition(StartKind.END),
}


def parse_start(text: str) -> StartPosition:
    if text in NAMES:
        return NAMES[text]
    if re.fullmatch(r"\d+", text):
        return StartPosition(StartKind.OFFSET, int(text))
    if re.fullmatch(r"-\d+", text):
        return StartPosition(StartKind.LAST, -int(text))
    try:
        return StartPosition(StartKind.TIMESTAMP, parse_moment_ms(text, "--from"))
    except UsageError as error:
        raise UsageError(f"--from {text!r} is not {FORMS}") from error


POLL_S = 0.2
BATCH = 1000
DEFAULT_FORMAT = "%s\\n"
# Without --follow, the cluster counts as unreachable after this long without an answer.
SILENCE_LIMIT_S = 30.0


@on_cluster
def command(
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC...", help="Topics to read; ^ begins a regular expression.", show_default=False
        ),
    ],
    target: Target,
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help=f"Where to start: {FORMS}.")
    ] = "beginning",
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", help="Join this consumer group, go on where it is, and commit what is printed."
        ),
    ] = None,
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
    """Read messages of topics. Ends where they ended when the command began, unless told to follow.

    \b
    Examples:
      millstream consume events
      millstream consume events --from -10 --format '%p:%o %k = %s\\n'
      millstream consume events --from 2026-01-31T12:00:00Z --json
      millstream consume events orders --follow --timeout 60
      millstream consume '^telemetry-.*' --group dashboard --follow
    """
    position = parse_start(start)
    if as_json and format_ != DEFAULT_FORMAT:
        raise UsageError("give either --json or --format, not both")
    if partition and (group is not None or len(topics) > 1 or topics[0].startswith("^")):
        raise UsageError("--partition goes with one topic, and without --group")
    if group is not None and position.kind not in (StartKind.BEGINNING, StartKind.END):
        raise UsageError(
            "--from with --group may be beginning or end only: a group goes on after what it has committed"
        )
    try:
        render = to_json_line if as_json else compile_format(format_)
    except MessageFormatError as error:
        raise UsageError(f"--format {format_!r}: {error}") from error
    reset = "latest" if position.kind is StartKind.END else "earliest"
    settings = {"enable.partition.eof": True, "auto.offset.reset": reset}
    client = target.consumer(**settings, **({"group.id": group} if group is not None else {}))
    bounded = not follow and position.kind is not StartKind.END
    reading = Reading(client, target, render, count, bounded=bounded, commits=group is not None)
    try:
        if group is not None:
            reading.join(topics)
        else:
            reading.start(topics, position, partition or None)
        reading.run(timeout)
    finally:
        reading.progress.clear()
        client.close()


class Reading:
    """One run of the consumer: which partitions are still read, and up to where."""

    def __init__(
        self,
        client: "Consumer",
        target: Target,
        render: Callable[[IncomingMessage], bytes],
        count: int | None,
        *,
        bounded: bool,
        commits: bool,
    ) -> None:
        self.client = client
        self.target = target
        self.render = render
        self.remaining = count
        self.bounded = bounded
        self.commits = commits
        self.shown = 0
        self.topics = ""
        # On a terminal the messages themselves show the progress.
        self.progress = output.Progress("messages", visible=not sys.stdout.isatty())
        # The partitions still to be read, each with its end when the command started, or None if that is unknown.
        self.unread: dict[tuple[str, int], int | None] = {}
        self.is_assigned = False
        self.printed: dict[tuple[str, int], int] = {}

    def start(self, topics: Sequence[str], position: StartPosition, wanted: list[int] | None) -> None:
        from confluent_kafka import TopicPartition

        with self.target.admin() as admin:
            places = self.places(admin, topics, wanted)
            starts, ends = admin.offsets(places, "earliest"), admin.offsets(places, "latest")
            is_timed = position.kind is StartKind.TIMESTAMP
            by_time = admin.known_offsets(places, position.number) if is_timed else {}
        first = {
            place: position.offset_in(starts[place], ends[place], by_time.get(place)) for place in places
        }
        read = [place for place in places if not self.bounded or first[place] < ends[place]]
        self.unread = {place: ends[place] for place in read}
        self.client.assign([TopicPartition(*place, first[place]) for place in read])
        self.is_assigned = True

    def places(
        self, admin: "Admin", topics: Sequence[str], wanted: list[int] | None
    ) -> "list[TopicPartition]":
        from millstream.admin.resets import places_of

        names: list[str] = []
        for word in topics:
            if word.startswith("^"):
                found = [each.name for each in admin.list_topics() if compiled(word).search(each.name)]
                if not found:
                    raise CommandError(f"no topic at {self.target.bootstrap} matches {word!r}")
                names += found
            else:
                names.append(word)
        self.topics = ", ".join(dict.fromkeys(names))
        return places_of(admin, dict.fromkeys(names, frozenset(wanted) if wanted else None))

    def join(self, topics: Sequence[str]) -> None:
        for word in topics:
            if word.startswith("^"):
                compiled(word)
        self.topics = ", ".join(topics)
        self.client.subscribe(list(topics), on_assign=self.assigned, on_revoke=self.revoked)

    def assigned(self, _client: "Consumer", places: "list[Place]") -> None:
        self.unread |= {(each.topic, each.partition): None for each in places}
        self.is_assigned = True

    def revoked(self, _client: "Consumer", places: "list[Place]") -> None:
        self.commit()
        for each in places:
            self.unread.pop((each.topic, each.partition), None)
            self.printed.pop((each.topic, each.partition), None)

    def commit(self) -> None:
        """Commit the printed messages; called after each round, and before partitions are taken away."""
        from confluent_kafka import KafkaException, TopicPartition

        offsets = [TopicPartition(*place, offset) for place, offset in self.printed.items()]
        if not self.commits or not offsets:
            return
        output.flush()
        try:
            self.client.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise kafka_failure("cannot commit", error.args[0], self.target.bootstrap) from error
        self.printed.clear()

    def run(self, timeout_s: float | None) -> None:
        last_message = time.monotonic()
        while not self.finished():
            first = self.client.poll(POLL_S)
            if first is not None:
                last_message = time.monotonic()
                self.take([first, *self.client.consume(BATCH, 0)])
                output.flush()
                self.commit()
                self.progress.update(self.shown)
                continue
            idle_s = time.monotonic() - last_message
            if timeout_s is not None and idle_s >= timeout_s:
                self.end_idle(timeout_s)
                return
            if self.bounded and timeout_s is None and idle_s >= SILENCE_LIMIT_S:
                raise NoAnswer(f"cannot read {self.topics}", f"no answer for {SILENCE_LIMIT_S:.0f} s")

    def finished(self) -> bool:
        return self.remaining == 0 or (self.bounded and self.is_assigned and not self.unread)

    def end_idle(self, timeout_s: float) -> None:
        if self.bounded:
            raise CommandError(
                f"no message for {timeout_s:g} s before the end of {self.topics}; a longer --timeout waits longer"
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
            self.printed[incoming.topic, incoming.partition] = incoming.offset + 1
            self.shown += 1
            if self.remaining is not None:
                self.remaining -= 1

    def still_wanted(self, message: IncomingMessage) -> bool:
        """Whether a message is before the end; also notes when it is the last one."""
        place = message.topic, message.partition
        if place not in self.unread:
            return False
        end = self.unread[place]
        if end is None:
            return True
        if message.offset + 1 >= end:
            del self.unread[place]
        return message.offset < end

    def take_event(self, message: "Message[Any, Any]") -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            self.unread.pop((message.topic() or "", message.partition() or 0), None)
        elif not error.retriable() and error.code() not in {
            KafkaError._TRANSPORT,  # noqa: SLF001 - librdkafka connects again by itself
            KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        }:
            raise kafka_failure(f"cannot read {self.topics}", error, self.target.bootstrap)


def compiled(pattern: str) -> "re.Pattern[str]":
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}") from error


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
