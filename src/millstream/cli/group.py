"""`millstream group`: list, describe, reset and delete consumer groups through Kafka's admin calls."""

import sys
from typing import Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import ExitCode, UsageError
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command("list")
def list_(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List the groups of a cluster with state, type, protocol, members and lag.

    The lag is the sum over all partitions with a committed offset. Where a partition's leader does not answer, the lag
    is shown as unknown for that many partitions.
    """
    from millstream.cli.group_view import group_names, view_groups
    from millstream.cli.kafka import admin_client

    client = admin_client(bootstrap)
    views = view_groups(client, group_names(client, bootstrap), bootstrap)
    columns = ("group", "state", "type", "protocol", "members", "lag")
    rows = [
        (view.group, view.state, view.type, view.protocol, len(view.members), view.shown_lag)
        for view in views
    ]
    if as_json:
        output.json_document(
            [
                {
                    **dict(zip(columns, row, strict=True)),
                    "lag": view.lag,
                    "partitions_with_unknown_lag": view.unknown_lags,
                }
                for row, view in zip(rows, views, strict=True)
            ]
        )
    elif not rows and sys.stdout.isatty():
        output.note(f"no groups at {bootstrap}; a consumer with a group id makes one")
    else:
        output.table(columns, rows)


@app.command()
def describe(group: Group, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show a group's members and, for each partition, committed offset, end offset and lag."""
    from millstream.cli.group_view import unknown_group, view_group
    from millstream.cli.kafka import admin_client

    view = view_group(admin_client(bootstrap), group, bootstrap)
    if view is None:
        raise unknown_group(group, bootstrap)
    if as_json:
        output.json_document(view.as_document())
        return
    output.facts(
        {
            "group": view.group,
            "state": view.state,
            "type": view.type,
            "protocol": view.protocol,
            "members": len(view.members),
            "lag": view.shown_lag,
        }
    )
    if view.members:
        output.table(
            ("member", "instance", "client", "host", "assigned"),
            [(m.member_id, m.instance_id, m.client_id, m.host, m.assigned_text) for m in view.members],
        )
    output.table(
        ("topic", "partition", "committed", "end", "lag", "client"),
        [
            (
                position.topic,
                position.partition,
                position.committed_offset,
                position.end_offset,
                position.shown_lag,
                position.member.client_id if position.member else None,
            )
            for position in view.positions
        ],
    )


@app.command("reset-offsets")
def reset_offsets(
    group: Group,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1,2]", help="A topic or some of it; repeatable."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics for which the group has committed offsets.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="The oldest message kept.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Only what comes from now on.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="This offset.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="TIME", help="First message of this time or later (RFC 3339)."),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="2h", help="First message that is at most this old."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="N further, or back when negative.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and end.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move a group without members to other offsets. Asks first when run on a terminal.

    Offsets outside of what a partition holds become its first or its end offset.

    \b
    Examples:
      millstream group reset-offsets billing --topic invoices --to-earliest --dry-run
      millstream group reset-offsets billing --topic invoices:0,3 --shift-by -100
      millstream group reset-offsets billing --all-topics --to-datetime 2026-01-31T12:00:00Z
    """
    import time

    from millstream.cli.kafka import admin_client
    from millstream.cli.reset_offsets import apply_moves, plan_moves, require_idle
    from millstream.cli.reset_target import parse_target, parse_topics

    target = parse_target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_datetime=to_datetime,
        by_duration=by_duration,
        shift_by=shift_by,
        now_ms=int(time.time() * 1000),
    )
    topics = parse_topics(topic or ())
    if bool(topics) == all_topics:
        raise UsageError("give either --topic TOPIC (repeatable) or --all-topics")
    client = admin_client(bootstrap)
    require_idle(client, group, bootstrap)
    moves = plan_moves(client, group, topics, target, bootstrap)
    columns = ("topic", "partition", "old_offset", "new_offset", "lag")
    rows = [(m.topic, m.partition, m.old_offset, m.new_offset, m.lag) for m in moves]
    asks = not (dry_run or yes) and sys.stdin.isatty()
    if not as_json:
        output.table(columns, rows)
    if asks:
        output.flush()
        typer.confirm(f"Move group {group} to these offsets at {bootstrap}?", abort=True, err=True)
    if not dry_run:
        apply_moves(client, group, moves, bootstrap)
    if as_json:
        partitions = [dict(zip(columns, row, strict=True)) for row in rows]
        output.json_document({"group": group, "dry_run": dry_run, "partitions": partitions})


@app.command()
def delete(
    groups: Annotated[
        list[str], typer.Argument(metavar="GROUP...", help="Groups to delete.", show_default=False)
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete groups without members, and their offsets. Asks first when run on a terminal."""
    from millstream.cli.errors import print_error
    from millstream.cli.group_delete import delete_group_calls, failure_of
    from millstream.cli.kafka import admin_client

    client = admin_client(bootstrap)
    names = list(dict.fromkeys(groups))
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(names)} at {bootstrap} with all offsets?", abort=True, err=True)
    deleted: list[str] = []
    for name, call in delete_group_calls(client, names).items():
        failure = failure_of(name, call, bootstrap)
        if failure is None:
            deleted.append(name)
        elif failure.exit_code == ExitCode.UNREACHABLE:
            raise failure
        else:
            print_error(str(failure))
    if as_json:
        output.json_document({"deleted": deleted, "failed": [name for name in names if name not in deleted]})
    else:
        for name in deleted:
            output.line(f"deleted group {name}")
    if len(deleted) < len(names):
        raise typer.Exit(ExitCode.FAILURE)
