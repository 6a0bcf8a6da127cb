"""`millstream backup`: copy a running cluster into a folder, look at what is there, and restore it."""

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import ExitCode, UsageError, print_error
from millstream.cli.options import AsJson, parse_moment_ms
from millstream.cli.target import Target, on_cluster

app = typer.Typer(
    help="Copy a running cluster into a folder, and make a node's data from it again.", no_args_is_help=True
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the backups are.", show_default=False)]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC[:0,1]", help="Only this topic, or these partitions; may be repeated."
    ),
]


@app.command()
@on_cluster
def create(folder: Folder, target: Target, topic: Topics = None, as_json: AsJson = False) -> None:
    """Add a backup of a running cluster to a folder. Nothing is stopped, and only what is new is copied.

    Topics with their settings, all messages as they are stored, and consumers' positions. Without --topic the
    whole cluster. A backup that is interrupted leaves the earlier ones as they were.

    \b
    Examples:
      millstream backup create /backups/main
      millstream backup create /backups/main --bootstrap n1:9092,n2:9092
      millstream backup create /backups/events --topic events --topic orders:0,1
    """
    from millstream.cli.backup_work import create_backup, shown_manifest

    manifest = create_backup(folder, target, topic or [])
    if as_json:
        output.json_document(shown_manifest(manifest))
        return
    output.facts(
        {
            "backup": manifest.backup_id,
            "topics": len(manifest.topics),
            "partitions": sum(len(each.partitions) for each in manifest.topics),
            "messages": manifest.record_count,
            "bytes": manifest.size_bytes,
            "copied now": manifest.copied_bytes,
        }
    )


@app.command("list")
def list_backups(
    folder: Folder,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all files and check them; exit with 1 when any is damaged.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the backups of a folder, the oldest first.

    \b
    Examples:
      millstream backup list /backups/main
      millstream backup list /backups/main --verify --json
    """
    from millstream.cli.backup_work import list_backups, moment_text, shown_manifest

    listed = list_backups(folder, verify=verify)
    if as_json:
        output.json_document(
            [
                (shown_manifest(each.manifest) if each.manifest else {"backup": each.backup_id})
                | {"verified": each.is_sound, "damages": each.damages}
                for each in listed
            ]
        )
    else:
        output.table(
            ("backup", "made", "topics", "partitions", "messages", "bytes", "copied", "state"),
            [
                (
                    each.backup_id,
                    moment_text(each.manifest.cut_ms),
                    len(each.manifest.topics),
                    sum(len(topic.partitions) for topic in each.manifest.topics),
                    each.manifest.record_count,
                    each.manifest.size_bytes,
                    each.manifest.copied_bytes,
                    each.state,
                )
                if each.manifest is not None
                else (each.backup_id, None, None, None, None, None, None, each.state)
                for each in listed
            ],
        )
    damages = list(dict.fromkeys(damage for each in listed for damage in each.damages))
    if damages:
        output.flush()
        for damage in damages:
            print_error(damage)
        raise typer.Exit(ExitCode.FAILURE)


@app.command()
def restore(
    folder: Folder,
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            "-d",
            metavar="DIR",
            help="The data directory to make: new or empty.",
            show_default=False,
        ),
    ],
    backup: Annotated[
        str | None, typer.Option("--backup", metavar="ID", help="Which one; the newest without.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Only what was stored up to then, such as 2026-01-31T12:00:00Z or @MILLISECONDS.",
        ),
    ] = None,
    node_id: Annotated[
        int, typer.Option("--node-id", min=0, help="Number of the node that the directory is for.")
    ] = 1,
    topic: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Make a node's data directory from a backup: every message at its offset, settings, consumers' positions.

    Every file that is used is verified. Start the node on it with `millstream serve`; it is a cluster of its own
    in which each partition has one replica. With --seeds other nodes can join it, and `millstream cluster reassign`
    gives them replicas.

    \b
    Examples:
      millstream backup restore /backups/main --data ./data
      millstream backup restore /backups/main --data ./data --until 2026-01-31T12:00:00Z
      millstream backup restore /backups/main --data ./data --topic events --node-id 3
    """
    from millstream.cli.backup_work import moment_text, restore_backup

    if backup is not None and until is not None:
        raise UsageError("--until finds the backups that it needs; leave out --backup")
    until_ms = None if until is None else parse_moment_ms(until, "--until")
    plan, restored = restore_backup(folder, data, node_id, backup, until_ms, topic or [])
    fewer = sorted(each.name for each in plan.topics if each.replication_factor > 1)
    if as_json:
        output.json_document(
            {
                "data": str(data),
                "node_id": node_id,
                "cluster_id": restored.cluster_id,
                "backups": list(plan.backup_ids),
                "until_ms": plan.until_ms,
                "topics": restored.topics,
                "partitions": restored.partitions,
                "messages": restored.records,
                "bytes": restored.size_bytes,
                "positions_set_back": restored.positions_set_back,
                "had_more_replicas": fewer,
            }
        )
        return
    output.facts(
        {
            "from": list(plan.backup_ids),
            "until": None if plan.until_ms is None else moment_text(plan.until_ms),
            "topics": restored.topics,
            "partitions": restored.partitions,
            "messages": restored.records,
            "bytes": restored.size_bytes,
            "positions set back": restored.positions_set_back,
        }
    )
    output.note(f"start it with: millstream serve --data {data} --node-id {node_id}")
    if fewer:
        output.note(
            f"{len(fewer)} topics had more than one replica, such as {fewer[0]}; when other nodes have joined, "
            "`millstream cluster reassign` gives them replicas again"
        )
