"""`millstream config`: check a settings file, and show every setting there is."""

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli import output
from millstream.cli.options import AsJson
from millstream.cli.settings import setting_rows, settings_for
from millstream.config.definitions import resolve_topic_config
from millstream.config.settings import Settings, TopicSettings
from millstream.config.units import format_size

app = typer.Typer(help="Check a settings file, and show the settings there are.", no_args_is_help=True)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML file to check.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Check a settings file and show what a node started with it, in this environment, would use.

    Of declared topics it also shows the disk that they may take at most on all nodes together: partitions
    x replicas x retention_size. A partition may exceed its share by one segment.

    Exits with 1, and names the key and the place, when the file cannot be used.

    \b
    Example:
      millstream config check millstream.yaml
    """
    settings = settings_for(file, {})
    rows = setting_rows(settings)
    topics = topic_documents(settings)
    if as_json:
        values = {row.name: row.value for row in rows}
        output.json_document(
            {
                "settings": values,
                "kafka": dict(settings.kafka),
                "topics": topics,
                "topics_disk_bytes": total_disk(settings),
                "warnings": list(settings.warnings),
            }
        )
        return
    output.table(
        ("setting", "value", "changed"),
        [(row.name, row.value, "yes" if row.is_changed else "") for row in rows],
    )
    if settings.topics:
        output.table(
            ("topic", "partitions", "replication_factor", "disk at most", "configs"),
            [
                (
                    t.name,
                    t.partitions,
                    t.replication_factor,
                    _size(topic_disk(settings, t)),
                    [f"{k}={v}" for k, v in t.configs.items()],
                )
                for t in settings.topics
            ],
        )
        output.note(_disk_note(settings))
    for warning in settings.warnings:
        output.note(f"warning: {warning}")
    output.note(f"{file} is valid")


@app.command()
def show(as_json: AsJson = False) -> None:
    """Show every setting with its default and meaning.

    In the file, `storage.segment_size` is the key `segment_size` of the section `storage`; in the
    environment it is MILLSTREAM_STORAGE_SEGMENT_SIZE.
    """
    rows = setting_rows(Settings())
    if as_json:
        output.json_document(
            [
                {
                    "name": row.name,
                    "default": row.default,
                    "variable": row.variable,
                    "kafka_name": row.kafka_name,
                    "meaning": row.meaning,
                }
                for row in rows
            ]
        )
        return
    output.table(("setting", "default", "meaning"), [(row.name, row.default, row.meaning) for row in rows])


def topic_documents(settings: Settings) -> list[dict[str, object]]:
    return [
        {
            "name": topic.name,
            "partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "configs": dict(topic.configs),
            "disk_bytes": topic_disk(settings, topic),
        }
        for topic in settings.topics
    ]


def topic_disk(settings: Settings, topic: TopicSettings) -> int | None:
    """The most disk space that all replicas of a topic may take; None without a limit."""
    config = resolve_topic_config(topic.configs, settings.broker_configs())
    if not config.deletes or config.retention_bytes < 0:
        return None
    return topic.partitions * topic.replication_factor * config.retention_bytes


def total_disk(settings: Settings) -> int | None:
    sizes = [topic_disk(settings, topic) for topic in settings.topics]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _size(size_bytes: int | None) -> str:
    return "no limit" if size_bytes is None else format_size(size_bytes)


def _disk_note(settings: Settings) -> str:
    unlimited = [topic.name for topic in settings.topics if topic_disk(settings, topic) is None]
    limited = sum(topic_disk(settings, topic) or 0 for topic in settings.topics)
    rest = f", and without a limit: {', '.join(unlimited)} (set retention_size)" if unlimited else ""
    return f"the declared topics may take {format_size(limited)} of disk on all nodes together{rest}"
