"""`millstream config`: check a settings file, and show every setting there is."""

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli import output
from millstream.cli.options import AsJson
from millstream.cli.settings import setting_rows, settings_for
from millstream.config.settings import Settings

app = typer.Typer(help="Check a settings file, and show the settings there are.", no_args_is_help=True)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML file to check.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Check a settings file and show what a node started with it, in this environment, would use.

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
        output.json_document({"settings": values, "kafka": dict(settings.kafka), "topics": topics})
        return
    output.table(
        ("setting", "value", "changed"),
        [(row.name, row.value, "yes" if row.is_changed else "") for row in rows],
    )
    if settings.topics:
        output.table(
            ("topic", "partitions", "replication_factor", "configs"),
            [
                (t.name, t.partitions, t.replication_factor, [f"{k}={v}" for k, v in t.configs.items()])
                for t in settings.topics
            ],
        )
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
    output.table(
        ("setting", "default", "meaning"),
        [(row.name, row.default, row.meaning) for row in rows],
    )


def topic_documents(settings: Settings) -> list[dict[str, object]]:
    return [
        {
            "name": topic.name,
            "partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "configs": dict(topic.configs),
        }
        for topic in settings.topics
    ]
