"""`millstream broker`: settings of brokers, and what they have on disk."""

from typing import Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import UsageError
from millstream.cli.options import AsJson, parse_pairs
from millstream.cli.target import Target, on_cluster

app = typer.Typer(help="Settings of brokers, and what they have on disk.", no_args_is_help=True)


@app.command()
@on_cluster
def config(
    broker: Annotated[
        str,
        typer.Argument(
            metavar="ID|all", help="A broker, or what is set for all of them.", show_default=False
        ),
    ],
    target: Target,
    to_set: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="Set a setting while it runs; repeatable."),
    ] = None,
    to_delete: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="KEY", help="Return a setting to what the file says; repeatable."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", "-a", help="Show settings that have their default too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a broker's settings, or change some of them.

    \b
    Examples:
      millstream broker config 1
      millstream broker config 1 --every --json
      millstream broker config all --set log.retention.ms=86400000
      millstream broker config all --delete log.retention.ms
    """
    if broker != "all" and not broker.isdecimal():
        raise UsageError(f"{broker!r} is neither the id of a broker nor all")
    node = None if broker == "all" else int(broker)
    changes = parse_pairs(to_set or (), "--set")
    with target.admin() as admin:
        if changes or to_delete:
            admin.alter_broker_configs(node, changes, to_delete or ())
        found = [each for each in admin.broker_configs(node).values() if every or not each.is_default]
    if as_json:
        output.json_document({each.name: {"value": each.value, "source": each.source} for each in found})
        return
    output.table(
        ("setting", "value", "from", "read only"),
        [
            (
                each.name,
                "(hidden)" if each.is_sensitive else each.value,
                each.source,
                each.is_read_only or None,
            )
            for each in found
        ],
    )


@app.command("log-dirs")
@on_cluster
def log_dirs(
    target: Target,
    broker: Annotated[
        int | None, typer.Argument(metavar="[ID]", help="This broker only.", show_default=False)
    ] = None,
    topics: Annotated[bool, typer.Option("--topics", "-t", help="Show the size of each topic too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the directories of brokers with their sizes in bytes.

    \b
    Examples:
      millstream broker log-dirs
      millstream broker log-dirs 1 --topics
    """
    with target.admin() as admin:
        found = admin.log_dirs(broker)
    by_topic: dict[tuple[int, str, str], int] = {}
    for each in found:
        for place, size in each.sizes.items():
            key = each.broker, each.path, place.topic
            by_topic[key] = by_topic.get(key, 0) + size
    if as_json:
        output.json_document(
            [
                {
                    "broker": each.broker,
                    "path": each.path,
                    "error": each.error,
                    "partitions": len(each.sizes),
                    "bytes": each.size_bytes,
                    "disk_bytes": each.total_bytes,
                    "free_bytes": each.usable_bytes,
                    "topics": {
                        topic: size
                        for (node, path, topic), size in sorted(by_topic.items())
                        if (node, path) == (each.broker, each.path)
                    },
                }
                for each in found
            ]
        )
        return
    output.table(
        ("broker", "directory", "partitions", "bytes", "disk", "free", "error"),
        [
            (
                str(each.broker),
                each.path,
                len(each.sizes),
                each.size_bytes,
                each.total_bytes,
                each.usable_bytes,
                each.error,
            )
            for each in found
        ],
    )
    if topics:
        output.table(
            ("broker", "directory", "topic", "bytes"),
            [(str(node), path, topic, size) for (node, path, topic), size in sorted(by_topic.items())],
        )
