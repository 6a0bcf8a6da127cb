"""`millstream topic`: list, create, describe, alter, trim and delete topics."""

from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import CommandError, UsageError
from millstream.cli.options import AsJson, Yes, confirm, parse_moment_ms, parse_pairs, parse_topics
from millstream.cli.target import Target, delete_each, on_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.client import ConfigEntry, TopicInfo

app = typer.Typer(help="List, create, describe, alter, trim and delete topics.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]
Config = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; repeatable.")
]


@app.command("list")
@on_cluster
def list_(
    target: Target,
    internal: Annotated[
        bool, typer.Option("--internal", help="Include internal topics (those starting with __).")
    ] = False,
    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated", help="Only those with replicas out of sync, internal ones too."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the topics of a cluster."""
    with target.admin() as admin:
        found = admin.list_topics(internal=True)
    if under_replicated:
        list_under_replicated(found, as_json)
        return
    topics = [each for each in found if internal or not each.name.startswith("__")]
    columns = ("topic", "partitions", "replication_factor")
    rows = [(each.name, len(each.partitions), each.replication_factor) for each in topics]
    nothing = f"no topics at {target.bootstrap}; `millstream topic create NAME` makes one"
    output.rows(columns, rows, as_json=as_json, nothing=nothing)


def list_under_replicated(topics: "list[TopicInfo]", as_json: bool) -> None:
    columns = ("partition", "leader", "replicas", "out_of_sync")
    rows = [
        (f"{topic.name}:{each.partition}", each.leader, each.replicas, each.out_of_sync)
        for topic in topics
        for each in topic.partitions
        if each.is_under_replicated
    ]
    output.rows(columns, rows, as_json=as_json, nothing="all replicas are in sync")


@app.command()
@on_cluster
def create(
    topic: Topic,
    target: Target,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Partitions; the cluster's default without."),
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="Copies of each partition.")
    ] = None,
    config: Config = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed when the topic exists already.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a topic.

    \b
    Examples:
      millstream topic create events --partitions 12
      millstream topic create state -c cleanup.policy=compact -c retention.ms=-1
    """
    from millstream.client.errors import TopicExistsError

    configs = parse_pairs(config or (), "--config")
    created = True
    with target.admin() as admin:
        try:
            admin.create_topic(topic, partitions, replication_factor, configs)
        except TopicExistsError as error:
            if not if_not_exists:
                raise CommandError(f"topic {topic!r} exists already; --if-not-exists accepts that") from error
            created = False
    text = f"created topic {topic}" if created else f"topic {topic} exists already"
    output.outcome({"topic": topic, "created": created}, text, as_json=as_json)


@app.command()
@on_cluster
def describe(topic: Topic, target: Target, as_json: AsJson = False) -> None:
    """Show a topic's partitions, leaders, replicas, offsets, and settings that are not the default.

    The number of messages is the end offset less the start offset; in a compacted topic some of
    these are gone.
    """
    with target.admin() as admin:
        view = admin.describe_topic(topic)
        configs = {name: each for name, each in admin.topic_configs(topic).items() if not each.is_default}
    if as_json:
        output.json_document(topic_document(view, configs))
        return
    output.facts(
        {
            "topic": view.name,
            "topic id": view.topic_id,
            "partitions": len(view.partitions),
            "messages": view.messages,
        }
        | {f"config {name}": each.value for name, each in configs.items()}
    )
    output.table(
        ("partition", "leader", "replicas", "isr", "start", "end", "messages"),
        [
            (p.partition, p.leader, p.replicas, p.in_sync_replicas, p.start_offset, p.end_offset, p.messages)
            for p in view.partitions
        ],
    )


def topic_document(view: "TopicInfo", configs: "Mapping[str, ConfigEntry]") -> dict[str, object]:
    return {
        "topic": view.name,
        "topic_id": view.topic_id,
        "messages": view.messages,
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "replicas": each.replicas,
                "isr": each.in_sync_replicas,
                "start_offset": each.start_offset,
                "end_offset": each.end_offset,
                "messages": each.messages,
            }
            for each in view.partitions
        ],
        "configs": {name: each.value for name, each in configs.items()},
    }


@app.command()
@on_cluster
def alter(
    topic: Topic,
    target: Target,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="New total number of partitions; only grows."),
    ] = None,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Return a setting to its default; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change a topic's settings or add partitions.

    \b
    Examples:
      millstream topic alter events --config retention.ms=86400000
      millstream topic alter events --delete-config retention.ms
      millstream topic alter events --partitions 24
    """
    to_set = parse_pairs(config or (), "--config")
    to_delete = list(delete_config or ())
    if partitions is None and not to_set and not to_delete:
        raise UsageError("nothing to alter; give --partitions, --config or --delete-config")
    with target.admin() as admin:
        if to_set or to_delete:
            admin.alter_topic_configs(topic, to_set, to_delete)
        if partitions is not None:
            admin.add_partitions(topic, partitions)
    changes = {"topic": topic, "partitions": partitions, "set": to_set, "deleted": to_delete}
    output.outcome(changes, f"altered topic {topic}", as_json=as_json)


@app.command()
@on_cluster
def trim(
    topic: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC[:0,1]...", help="Topics or some of them.", show_default=False),
    ],
    target: Target,
    before_offset: Annotated[
        int | None, typer.Option("--before-offset", min=0, help="Delete what is below this offset.")
    ] = None,
    before_time: Annotated[
        str | None,
        typer.Option(
            "--before-time", metavar="TIME", help="Delete what is before the first message of then."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--everything", help="Delete all that is there now.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and end.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest messages of topics. Asks first when run on a terminal.

    \b
    Examples:
      millstream topic trim events:0 --before-offset 1000
      millstream topic trim events --before-time 2026-01-31T12:00:00Z --dry-run
      millstream topic trim events orders --everything --yes
    """
    from millstream.admin.resets import places_of

    if sum((before_offset is not None, before_time is not None, everything)) != 1:
        raise UsageError("give one of --before-offset, --before-time and --everything")
    with target.admin() as admin:
        places = places_of(admin, parse_topics(topic))
        starts, ends = admin.offsets(places, "earliest"), admin.offsets(places, "latest")
        wanted = ends
        if before_offset is not None:
            wanted = {place: min(before_offset, ends[place]) for place in places}
        elif before_time is not None:
            wanted = admin.offsets(places, parse_moment_ms(before_time, "--before-time"))
        wanted = {place: max(wanted[place], starts[place]) for place in places}
        columns = ("topic", "partition", "start", "new_start", "messages")
        rows = [(*place, starts[place], wanted[place], wanted[place] - starts[place]) for place in places]
        if not as_json:
            output.table(columns, rows)
        confirm(f"Delete these messages at {target.bootstrap} permanently?", yes=dry_run or yes)
        if not dry_run:
            admin.delete_records({place: each for place, each in wanted.items() if each > starts[place]})
    if as_json:
        partitions = [dict(zip(columns, row, strict=True)) for row in rows]
        output.json_document({"dry_run": dry_run, "partitions": partitions})


@app.command()
@on_cluster
def delete(
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="Topics to delete.", show_default=False)
    ],
    target: Target,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete topics and everything in them. Asks first when run on a terminal."""
    delete_each(target, "topic", topics, "all messages", yes=yes, as_json=as_json)
