"""`millstream cluster rebalance`, `elect` and `reassign`: who leads partitions, and who keeps them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli import output
from millstream.cli.cluster_work import (
    Patience,
    PlacementName,
    Throttle,
    VirtualNodes,
    Yes,
    check_placement,
    chosen_placement,
    elect_leaders,
    move_replicas,
    show_cancelled,
    show_moves,
    show_ongoing,
)
from millstream.cli.errors import ExitCode, UsageError
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from millstream.cluster.placement import VIRTUAL_NODES

Partitions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC[:PARTITION]...", help="Topics, or single partitions of them.", show_default=False
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait for replicas to be copied.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would move, and move nothing.")]


def rebalance(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    leaders: Annotated[
        bool, typer.Option("--leaders", help="Only give leadership back to preferred leaders; copy nothing.")
    ] = False,
    placement: PlacementName = None,
    virtual_nodes: VirtualNodes = VIRTUAL_NODES,
    throttle: Throttle = None,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    timeout: Patience = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Spread replicas and leaders over the nodes that are live now.

    \b
    Examples:
      millstream cluster rebalance --dry-run
      millstream cluster rebalance --throttle 50MB
      millstream cluster rebalance --leaders
    """
    from millstream.cli.cluster_calls import ClusterCalls
    from millstream.cli.cluster_moves import plan
    from millstream.cli.cluster_view import view_cluster

    check_placement(placement)
    with ClusterCalls(bootstrap) as calls:
        moves = []
        if not leaders:
            view = view_cluster(calls)
            moves = plan(view, chosen_placement(calls, placement, view.controller), virtual_nodes)
        if dry_run:
            show_moves(moves, as_json)
            return
        is_done = move_replicas(calls, moves, throttle, timeout, is_waiting=not no_wait)
        elected = elect_leaders(calls, None, is_unclean=False)[0] if is_done else []
    if as_json:
        output.json_document(
            {"moves": [each.as_document() for each in moves], "done": is_done, "elected": len(elected)}
        )
    else:
        state = "moved" if is_done else "on their way"
        output.line(f"{len(moves)} partitions {state}, {len(elected)} given back to their preferred leaders")


def elect(
    partitions: Partitions = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Where nobody leads, elect any live replica; messages may be lost."),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Elect preferred leaders where others lead; of all partitions without arguments.

    \b
    Examples:
      millstream cluster elect
      millstream cluster elect events orders:3
      millstream cluster elect --unclean events:0
    """
    from millstream.cli.cluster_calls import ClusterCalls
    from millstream.cli.cluster_moves import moves_of

    if unclean and not partitions:
        raise UsageError("--unclean may lose messages: name the partitions it is meant for")
    if unclean and not yes and sys.stdin.isatty():
        typer.confirm("Messages that only other replicas have will be lost. Go on?", abort=True, err=True)
    with ClusterCalls(bootstrap) as calls:
        wanted = None
        if partitions:
            wanted = [(each.topic, each.index) for each in moves_of(calls, _parsed(partitions), ())]
        elected, failed = elect_leaders(calls, wanted, is_unclean=unclean)
    if as_json:
        output.json_document(
            {
                "elected": [{"topic": topic, "partition": index} for topic, index in elected],
                "failed": [{"topic": t, "partition": i, "error": reason} for t, i, reason in failed],
            }
        )
    else:
        output.line(f"{len(elected)} leaders elected")
        for topic, index, reason in failed:
            output.note(f"{topic}:{index}: {reason}")
    if failed:
        raise typer.Exit(ExitCode.FAILURE)


def reassign(
    partitions: Partitions = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    replicas: Annotated[
        str | None,
        typer.Option(
            "--replicas", "-r", metavar="ID,...", help="Their new replicas, the preferred leader first."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", exists=True, dir_okay=False, help="A plan as JSON, as Kafka's tool reads it."
        ),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Call off what is under way.")] = False,
    throttle: Throttle = None,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    timeout: Patience = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Give partitions other replicas, call that off, or without options show what is under way.

    \b
    Examples:
      millstream cluster reassign
      millstream cluster reassign events:0 events:1 --replicas 2,3,4
      millstream cluster reassign --file plan.json --throttle 50MB
      millstream cluster reassign --cancel
    """
    from millstream.cli import cluster_moves
    from millstream.cli.cluster_calls import ClusterCalls

    if sum((replicas is not None, file is not None, cancel)) > 1:
        raise UsageError("give one of --replicas, --file and --cancel")
    if (replicas is not None and not partitions) or (file is not None and partitions):
        raise UsageError("--replicas needs TOPIC[:PARTITION], and --file names the partitions itself")
    with ClusterCalls(bootstrap) as calls:
        if cancel:
            called_off = cluster_moves.cancel(calls, _parsed(partitions or []))
            show_cancelled(called_off, as_json)
            return
        if replicas is None and file is None:
            show_ongoing(cluster_moves.reassignments(calls), as_json)
            return
        if file is not None:
            moves = cluster_moves.moves_in(calls, file)
        else:
            moves = cluster_moves.moves_of(calls, _parsed(partitions or []), _ids(replicas or ""))
        if dry_run:
            show_moves(moves, as_json)
            return
        is_done = move_replicas(calls, moves, throttle, timeout, is_waiting=not no_wait)
    if as_json:
        output.json_document({"moves": [each.as_document() for each in moves], "done": is_done})
    else:
        output.line(f"{len(moves)} partitions {'moved' if is_done else 'on their way'}")


def _parsed(names: list[str]) -> list[tuple[str, int | None]]:
    parsed: list[tuple[str, int | None]] = []
    for name in names:
        topic, colon, index = name.rpartition(":")
        if not name or (colon and not (topic and index.isdecimal())):
            raise UsageError(f"{name!r} is not of the form TOPIC or TOPIC:PARTITION")
        parsed.append((topic, int(index)) if colon else (name, None))
    return parsed


def _ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise UsageError(f"--replicas {text!r} is not a list of ids such as 1,2,3") from None
