"""`millstream queue`: queues with an acknowledgement for each message (share groups)."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import output
from millstream.cli.options import AsJson, Yes, confirm, parse_pairs
from millstream.cli.target import Target, on_cluster

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from millstream.protocol.queue_call import QueueRow
    from millstream.protocol.records import Headers

app = typer.Typer(
    help="Look at, consume, purge and redrive queues: topics whose messages are shared out in groups.",
    no_args_is_help=True,
)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the share group.", show_default=False)]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]
_COLUMNS = ("group", "topic", "partition", "depth", "in_flight", "oldest_s", "redelivered", "dead_letters")


@app.command("list")
@on_cluster
def list_(target: Target, as_json: AsJson = False) -> None:
    """List all queues: depth, messages out for delivery, age of the oldest, redeliveries, dead letters.

    The last two are counted while consumers use the queue; ten minutes after the last one they begin at 0 again.
    """
    with target.queue_admin() as admin:
        queues = admin.queues()
    nothing = f"no queues at {target.bootstrap}"
    output.rows(_COLUMNS, [_row(each) for each in queues], as_json=as_json, nothing=nothing)


@app.command()
@on_cluster
def describe(group: Group, target: Target, as_json: AsJson = False) -> None:
    """Show a share group's settings and its queues, by partition."""
    with target.queue_admin() as admin:
        configs, queues = admin.group_configs(group), admin.queues(group)
    if not queues:
        output.note(
            f"no consumer has used a queue of {group!r} yet; check the name with `millstream queue list`"
        )
    if as_json:
        rows = [dict(zip(_COLUMNS, _row(each), strict=True)) for each in queues]
        output.json_document({"group": group, "configs": configs, "queues": rows})
        return
    output.facts(configs)
    output.table(_COLUMNS, [_row(each) for each in queues])


@app.command()
@on_cluster
def configure(
    group: Group,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE...", help="Settings by name; KEY= takes one back.", show_default=False
        ),
    ],
    target: Target,
) -> None:
    """Set what a share group does: locks, delivery limit, back-off, dead-letter topic."""
    changes = {name: value or None for name, value in parse_pairs(settings, "KEY=VALUE").items()}
    with target.queue_admin() as admin:
        admin.alter_group_configs(group, changes)


@app.command()
@on_cluster
def peek(
    group: Group,
    topic: Topic,
    target: Target,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="This partition only.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="So many of each.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show messages that the group has not settled, without taking them."""
    rows = []
    with target.queue_admin() as admin:
        partitions = range(admin.partitions(topic)) if partition is None else (partition,)
        for index in partitions:
            peeked, records = admin.peek(group, topic, index, max_messages=count)
            for run in peeked.runs:
                for offset in range(run.first, run.last + 1):
                    record = records.get(offset)
                    if record is not None:
                        value = (record.value or b"").decode(errors="backslashreplace")
                        rows.append((index, offset, run.state, run.count, run.owner, value))
    columns = ("partition", "offset", "state", "deliveries", "member", "value")
    output.rows(columns, rows, as_json=as_json)


@app.command()
@on_cluster
def consume(
    group: Group,
    topic: Topic,
    target: Target,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.1, help="Stop after so many seconds without one.")
    ] = None,
    release: Annotated[
        bool, typer.Option("--release", help="Give each back instead of accepting it.")
    ] = False,
) -> None:
    """Take messages of a queue and print their values; each is accepted when it is printed."""
    left, silent_since = count, time.monotonic()
    with target.queue_consumer(topic, group) as queue:
        while left is None or left > 0:
            messages = queue.receive(min(left or 100, 100), 1.0)
            for message in messages:
                output.write((message.value or b"") + b"\n")
            output.flush()
            if messages:
                (queue.release if release else queue.accept)(*messages)
                silent_since = time.monotonic()
                left = None if left is None else left - len(messages)
            elif timeout is not None and time.monotonic() - silent_since >= timeout:
                return


@app.command()
@on_cluster
def purge(group: Group, topic: Topic, target: Target, yes: Yes = False) -> None:
    """Give up all messages of a topic that wait for the group. Those out for delivery are not touched."""
    confirm(f"Give up all messages of {topic} that wait for {group} at {target.bootstrap}?", yes=yes)
    with target.queue_admin() as admin:
        output.line(str(admin.purge(group, topic)))


@app.command()
@on_cluster
def redrive(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The dead-letter topic.", show_default=False)],
    target: Target,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="At most so many.")] = 1_000_000,
    group: Annotated[
        str, typer.Option("--group", "-g", help="Remembers what was redriven.")
    ] = "millstream-redrive",
) -> None:
    """Send dead letters back to the topics that they came from, with key, value and headers as they were."""
    from millstream.client.errors import TimedOutError, UnknownTopicError, from_kafka
    from millstream.client.queue_redrive import redrive as run

    sent = stayed = 0
    producer = target.producer(**{"enable.idempotence": True})
    # The producer itself would look for a missing topic for half a minute, and the cluster might make it.
    exists: dict[str, bool] = {}

    def send(to: str, key: bytes | None, value: bytes | None, headers: "Headers") -> None:
        if to not in exists:
            exists[to] = to in producer.list_topics(timeout=60).topics
        if not exists[to]:
            raise UnknownTopicError(f"there is no topic {to!r}")
        failures: list[KafkaError] = []
        producer.produce(
            to,
            value,
            key,
            headers=list(headers),
            on_delivery=lambda error, _: failures.append(error) if error is not None else None,
        )
        if producer.flush(60):
            raise TimedOutError(f"sending to {to}: no answer within 60 s")
        if failures:
            raise from_kafka(f"sending to {to}", failures[0])

    try:
        with target.queue_consumer(topic, group) as queue:
            for each in run(queue, send, count):
                sent += each.topic is not None
                stayed += each.topic is None
    finally:
        # Also of those before a failure.
        output.line(str(sent))
    if stayed:
        output.note(
            f"{stayed} letters stay: they do not name their topic or hold their record, or their topic is gone"
        )


def _row(queue: "QueueRow") -> tuple[object, ...]:
    age = round(time.time() - queue.oldest_ms / 1000, 1) if queue.oldest_ms >= 0 else 0.0
    return (
        queue.group,
        queue.topic,
        queue.partition,
        queue.depth,
        queue.in_flight,
        max(age, 0.0),
        queue.redelivered,
        queue.dead_letters,
    )
