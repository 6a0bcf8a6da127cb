"""`millstream topic`: list, create, describe, alter and delete topics through Kafka's admin calls."""

import sys
from typing import Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import CommandError, ExitCode, UsageError
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs

app = typer.Typer(help="List, create, describe, alter and delete topics.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]


@app.command("list")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    internal: Annotated[
        bool, typer.Option("--internal", help="Include internal topics (those starting with __).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the topics of a cluster."""
    from confluent_kafka import KafkaException

    from millstream.cli.errors import kafka_failure
    from millstream.cli.kafka import REQUEST_TIMEOUT_S, admin_client

    try:
        topics = admin_client(bootstrap).list_topics(timeout=REQUEST_TIMEOUT_S).topics
    except KafkaException as error:
        raise kafka_failure("cannot list topics", error.args[0], bootstrap) from error
    rows = [
        (name, len(topic.partitions), max((len(p.replicas) for p in topic.partitions.values()), default=0))
        for name, topic in sorted(topics.items())
        if internal or not name.startswith("__")
    ]
    columns = ("topic", "partitions", "replication_factor")
    if as_json:
        output.json_document([dict(zip(columns, row, strict=True)) for row in rows])
    elif not rows and sys.stdout.isatty():
        output.note(f"no topics at {bootstrap}; `millstream topic create NAME` makes one")
    else:
        output.table(columns, rows)


@app.command()
def create(
    topic: Topic,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Partitions; the cluster's default without."),
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="Copies of each partition.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; repeatable."),
    ] = None,
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
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    from millstream.cli.errors import kafka_failure
    from millstream.cli.kafka import REQUEST_TIMEOUT_S, admin_client

    new_topic = NewTopic(
        topic,
        num_partitions=partitions or -1,
        replication_factor=replication_factor or -1,
        config=parse_pairs(config or (), "--config"),
    )
    client = admin_client(bootstrap)
    created = True
    try:
        futures = client.create_topics([new_topic], request_timeout=REQUEST_TIMEOUT_S)
        futures[topic].result(timeout=REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise kafka_failure(f"cannot create topic {topic!r}", error.args[0], bootstrap) from error
        if not if_not_exists:
            raise CommandError(f"topic {topic!r} exists already; --if-not-exists accepts that") from error
        created = False
    if as_json:
        output.json_document({"topic": topic, "created": created})
    else:
        output.line(f"created topic {topic}" if created else f"topic {topic} exists already")


@app.command()
def describe(topic: Topic, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show a topic's partitions, leaders, replicas, offsets, and settings that are not the default.

    The number of messages is the end offset less the start offset; in a compacted topic some of
    these are gone.
    """
    from millstream.cli.describe import describe_topic
    from millstream.cli.kafka import admin_client

    view = describe_topic(admin_client(bootstrap), topic, bootstrap)
    if as_json:
        output.json_document(view.as_document())
        return
    output.facts(
        {
            "topic": view.topic,
            "topic id": view.topic_id,
            "partitions": len(view.partitions),
            "messages": view.messages,
        }
        | {f"config {name}": value for name, value in view.configs.items()}
    )
    output.table(
        ("partition", "leader", "replicas", "isr", "start", "end", "messages"),
        [
            (p.partition, p.leader, p.replicas, p.isr, p.start_offset, p.end_offset, p.messages)
            for p in view.partitions
        ],
    )


@app.command()
def alter(
    topic: Topic,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="New total number of partitions; only grows."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="Set a setting; repeatable."),
    ] = None,
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
    from millstream.cli.alter import add_partitions, change_configs
    from millstream.cli.kafka import admin_client

    to_set = parse_pairs(config or (), "--config")
    to_delete = list(delete_config or ())
    if partitions is None and not to_set and not to_delete:
        raise UsageError("nothing to alter; give --partitions, --config or --delete-config")
    client = admin_client(bootstrap)
    if to_set or to_delete:
        change_configs(client, topic, to_set, to_delete, bootstrap)
    if partitions is not None:
        add_partitions(client, topic, partitions, bootstrap)
    if as_json:
        changes = {"topic": topic, "partitions": partitions, "set": to_set, "deleted": to_delete}
        output.json_document(changes)
    else:
        output.line(f"altered topic {topic}")


@app.command()
def delete(
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="Topics to delete.", show_default=False)
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete topics and everything in them. Asks first when run on a terminal."""
    from confluent_kafka import KafkaError, KafkaException

    from millstream.cli.errors import kafka_failure, print_error, unknown_topic
    from millstream.cli.kafka import REQUEST_TIMEOUT_S, admin_client

    client = admin_client(bootstrap)
    names = list(dict.fromkeys(topics))
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(names)} at {bootstrap} with all messages?", abort=True, err=True)
    deleted: list[str] = []
    futures = client.delete_topics(names, request_timeout=REQUEST_TIMEOUT_S)
    for name, future in futures.items():
        try:
            future.result(timeout=REQUEST_TIMEOUT_S + 5)
            deleted.append(name)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                print_error(str(unknown_topic(name, bootstrap)))
                continue
            failure = kafka_failure(f"cannot delete topic {name!r}", error.args[0], bootstrap)
            if failure.exit_code == ExitCode.UNREACHABLE:
                raise failure from error
            print_error(str(failure))
    if as_json:
        output.json_document({"deleted": deleted, "failed": [name for name in names if name not in deleted]})
    else:
        for name in deleted:
            output.line(f"deleted topic {name}")
    if len(deleted) < len(names):
        raise typer.Exit(ExitCode.FAILURE)
