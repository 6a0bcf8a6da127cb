"""`millstream group`: list, describe, reset and delete consumer groups through Kafka's admin calls."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import CommandError, UsageError
from millstream.cli.options import AsJson, Yes, confirm, parse_moment_ms, parse_topics
from millstream.cli.target import Target, delete_each, on_cluster
from millstream.config.units import parse_duration_ms

if TYPE_CHECKING:
    from millstream.admin.resets import ResetTarget
    from millstream.client import GroupInfo, GroupMember, GroupPosition

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False)]


@app.command("list")
@on_cluster
def list_(target: Target, as_json: AsJson = False) -> None:
    """List the groups of a cluster with state, type, protocol, members and lag.

    The lag is the sum over all partitions with a committed offset. Where a partition's leader does not answer, the lag
    is shown as unknown for that many partitions.
    """
    with target.admin() as admin:
        views = admin.describe_groups(each.group for each in admin.list_groups())
    columns = ("group", "state", "type", "protocol", "members", "lag")
    rows = [
        (view.group, view.state, view.type, view.protocol, len(view.members), shown_lag(view))
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
        output.note(f"no groups at {target.bootstrap}; a consumer with a group id makes one")
    else:
        output.table(columns, rows)


@app.command()
@on_cluster
def describe(group: Group, target: Target, as_json: AsJson = False) -> None:
    """Show a group's members and, for each partition, committed offset, end offset and lag."""
    with target.admin() as admin:
        view = admin.describe_group(group)
    if as_json:
        output.json_document(group_document(view))
        return
    output.facts(
        {
            "group": view.group,
            "state": view.state,
            "type": view.type,
            "protocol": view.protocol,
            "members": len(view.members),
            "lag": shown_lag(view),
        }
    )
    if view.members:
        output.table(
            ("member", "instance", "client", "host", "assigned"),
            [(m.member_id, m.instance_id, m.client_id, m.host, assigned_text(m)) for m in view.members],
        )
    output.table(
        ("topic", "partition", "committed", "end", "lag", "client"),
        [
            (
                *position.place,
                position.committed_offset,
                position.end_offset,
                "unknown" if position.is_lag_unknown else position.lag,
                position.member.client_id if position.member else None,
            )
            for position in view.positions
        ],
    )


def shown_lag(view: "GroupInfo") -> int | str:
    unknown = view.unknown_lags
    return f"{view.lag} and unknown for {unknown} partition(s)" if unknown else view.lag


def assigned_text(member: "GroupMember") -> str:
    topics: dict[str, list[int]] = {}
    for topic, partition in member.assignment:
        topics.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in topics.items())


def group_document(view: "GroupInfo") -> dict[str, object]:
    def place(position: "GroupPosition") -> dict[str, object]:
        return {
            "topic": position.place.topic,
            "partition": position.place.partition,
            "committed_offset": position.committed_offset,
            "end_offset": position.end_offset,
            "lag": position.lag,
            "member_id": position.member.member_id if position.member else None,
        }

    return {
        "group": view.group,
        "state": view.state,
        "type": view.type,
        "protocol": view.protocol,
        "lag": view.lag,
        "partitions_with_unknown_lag": view.unknown_lags,
        "members": [
            {
                "member_id": each.member_id,
                "instance_id": each.instance_id,
                "client_id": each.client_id,
                "host": each.host,
                "assignment": [place._asdict() for place in each.assignment],
            }
            for each in view.members
        ],
        "partitions": [place(each) for each in view.positions],
    }


@app.command("reset-offsets")
@on_cluster
def reset_offsets(
    group: Group,
    target: Target,
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
    from millstream.admin.resets import apply_reset, plan_reset

    to = parse_target(
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
    admin = target.admin()
    moves = plan_reset(admin, group, topics, to)
    columns = ("topic", "partition", "old_offset", "new_offset", "lag")
    rows = [(m.topic, m.partition, m.old_offset, m.new_offset, m.lag) for m in moves]
    if not as_json:
        output.table(columns, rows)
    confirm(f"Move group {group} to these offsets at {target.bootstrap}?", yes=dry_run or yes)
    if not dry_run:
        apply_reset(admin, group, moves)
    if as_json:
        partitions = [dict(zip(columns, row, strict=True)) for row in rows]
        output.json_document({"group": group, "dry_run": dry_run, "partitions": partitions})


@app.command("delete-offsets")
@on_cluster
def delete_offsets(
    group: Group,
    target: Target,
    topic: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1,2]", help="A topic or some of it; repeatable."),
    ],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Forget a group's offsets of topics that none of its members reads. Asks first when run on a terminal.

    \b
    Example:
      millstream group delete-offsets billing --topic invoices
    """
    wanted = parse_topics(topic)
    with target.admin() as admin:
        places = [
            place
            for place in admin.describe_group(group).committed
            if place.topic in wanted and place.partition in (wanted[place.topic] or (place.partition,))
        ]
        if not places:
            raise CommandError(
                f"group {group!r} has committed nothing there; see `millstream group describe {group}`"
            )
        names = ", ".join(f"{each.topic}:{each.partition}" for each in places)
        confirm(f"Forget the offsets of group {group} for {names}?", yes=yes)
        admin.delete_offsets(group, places)
    deleted = {"group": group, "deleted": [each._asdict() for each in places]}
    output.outcome(deleted, f"deleted the offsets of group {group} for {names}", as_json=as_json)


def parse_target(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
    now_ms: int,
) -> "ResetTarget":
    from millstream.admin.resets import ResetTarget, TargetKind

    chosen: list[ResetTarget] = []
    if to_earliest:
        chosen.append(ResetTarget(TargetKind.EARLIEST))
    if to_latest:
        chosen.append(ResetTarget(TargetKind.LATEST))
    if to_offset is not None:
        chosen.append(ResetTarget(TargetKind.OFFSET, to_offset))
    # Negative timestamps mean other things to ListOffsets, and no message is older than 1970.
    if to_datetime is not None:
        moment_ms = parse_moment_ms(to_datetime, "--to-datetime")
        chosen.append(ResetTarget(TargetKind.TIMESTAMP, max(0, moment_ms)))
    if by_duration is not None:
        chosen.append(ResetTarget(TargetKind.TIMESTAMP, max(0, now_ms - parse_span_ms(by_duration))))
    if shift_by is not None:
        chosen.append(ResetTarget(TargetKind.SHIFT, shift_by))
    if len(chosen) != 1:
        raise UsageError(
            "give exactly one of --to-earliest, --to-latest, --to-offset, --to-datetime, --by-duration and --shift-by"
        )
    return chosen[0]


def parse_span_ms(text: str) -> int:
    try:
        span_ms = parse_duration_ms(text)
    except ValueError as error:
        raise UsageError(f"--by-duration {error}") from error
    if span_ms < 0:
        raise UsageError(f"--by-duration {text!r} is not a duration such as 30m or 2h")
    return span_ms


@app.command()
@on_cluster
def delete(
    groups: Annotated[
        list[str], typer.Argument(metavar="GROUP...", help="Groups to delete.", show_default=False)
    ],
    target: Target,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete groups without members, and their offsets. Asks first when run on a terminal."""
    delete_each(target, "group", groups, "all offsets", yes=yes, as_json=as_json)
