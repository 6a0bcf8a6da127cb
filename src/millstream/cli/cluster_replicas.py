"""`millstream cluster rebalance`, `elect` and `reassign`: who leads partitions, and who keeps them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import ExitCode, UsageError
from millstream.cli.options import AsJson, Yes, confirm
from millstream.cli.target import Target, on_cluster
from millstream.cluster.placement import PLACEMENTS, VIRTUAL_NODES
from millstream.config.units import parse_size

if TYPE_CHECKING:
    from millstream.admin.moves import Ongoing
    from millstream.admin.plans import Move
    from millstream.client.wire.cluster import Cluster

Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle", metavar="SIZE", help="At most this many bytes a second and broker, such as 50MB."
    ),
]
Patience = Annotated[float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait.")]


def _known_placement(given: str | None) -> str | None:
    if given is not None and given not in PLACEMENTS:
        raise UsageError(f"--placement {given!r} is unknown; use {', '.join(PLACEMENTS)}")
    return given


PlacementName = Annotated[
    str | None,
    typer.Option(
        "--placement",
        help="How replicas are spread: balanced, ring or modulo.",
        show_default="as the cluster places new partitions",
        callback=_known_placement,
    ),
]
VirtualNodes = Annotated[
    int, typer.Option("--virtual-nodes", min=1, help="Points of each broker on the ring, for placement ring.")
]
Partitions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC[:PARTITION]...", help="Topics, or single partitions of them.", show_default=False
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait for replicas to be copied.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would move, and move nothing.")]


@on_cluster
def rebalance(
    target: Target,
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
    from millstream.admin.cluster_view import view_cluster
    from millstream.admin.moves import elect_leaders, placement_of
    from millstream.admin.plans import rebalanced

    rate = parse_rate(throttle, is_waiting=not no_wait)
    with target.cluster() as cluster:
        moves = []
        if not leaders:
            view = view_cluster(cluster)
            moves = rebalanced(view, placement or placement_of(cluster, view.controller), virtual_nodes)
        if dry_run:
            show_moves(moves, as_json)
            return
        is_done = move_replicas(cluster, moves, rate, None if no_wait else timeout)
        elected, failed = elect_leaders(cluster, None) if is_done else ([], [])
    state = "moved" if is_done else "on their way"
    output.outcome(
        {
            "moves": [each.as_document() for each in moves],
            "done": is_done,
            "elected": len(elected),
            "not_elected": len(failed),
        },
        f"{len(moves)} partitions {state}, {len(elected)} given back to their preferred leaders",
        as_json=as_json,
    )
    fail_where_not_elected(failed)


@on_cluster
def elect(
    target: Target,
    partitions: Partitions = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Where there is no leader, elect any live replica; messages may be lost."
        ),
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
    from millstream.admin.cluster_view import partitions_of
    from millstream.admin.moves import elect_leaders
    from millstream.admin.plans import chosen

    if unclean and not partitions:
        raise UsageError("--unclean may lose messages: name the partitions it is meant for")
    confirm("Messages that only other replicas have will be lost. Go on?", yes=yes or not unclean)
    named = parse_partitions(partitions or ())
    with target.cluster() as cluster:
        wanted = None
        if named:
            wanted = [(each.topic, each.index) for each in chosen(partitions_of(cluster), named)]
        elected, failed = elect_leaders(cluster, wanted, is_unclean=unclean)
    if as_json:
        output.json_document(
            {
                "elected": [{"topic": topic, "partition": index} for topic, index in elected],
                "failed": [{"topic": t, "partition": i, "error": reason} for t, i, reason in failed],
            }
        )
    else:
        output.line(f"{len(elected)} leaders elected")
    fail_where_not_elected(failed)


@on_cluster
def reassign(
    target: Target,
    partitions: Partitions = None,
    replicas: Annotated[
        str | None,
        typer.Option(
            "--replicas", "-r", metavar="ID,...", help="Their new replicas, the preferred leader first."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", min=1, help="So many replicas for each; those in sync stay."),
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
      millstream cluster reassign events --replication-factor 3
      millstream cluster reassign --file plan.json --throttle 50MB
      millstream cluster reassign --cancel
    """
    from millstream.admin import moves as moving
    from millstream.admin.cluster_view import partitions_of, view_cluster
    from millstream.admin.plans import chosen, moves_in, moves_to, with_factor

    if sum((replicas is not None, replication_factor is not None, file is not None, cancel)) > 1:
        raise UsageError("give one of --replicas, --replication-factor, --file and --cancel")
    if file is not None and partitions:
        raise UsageError("--file names the partitions itself")
    if not partitions and (replicas is not None or replication_factor is not None):
        raise UsageError("--replicas and --replication-factor need TOPIC[:PARTITION]")
    named, rate = parse_partitions(partitions or ()), parse_rate(throttle, is_waiting=not no_wait)
    with target.cluster() as cluster:
        if replicas is None and replication_factor is None and file is None and not cancel:
            show_ongoing(moving.reassignments(cluster), as_json)
            return
        known = partitions_of(cluster)
        if cancel:
            wanted = [(each.topic, each.index) for each in chosen(known, named)] if named else None
            show_cancelled(moving.cancel(cluster, wanted), as_json)
            return
        if file is not None:
            moves = moves_in(file.read_text(), known)
        elif replication_factor is not None:
            view = view_cluster(cluster)
            placement = moving.placement_of(cluster, view.controller)
            moves = with_factor(view, chosen(known, named), replication_factor, placement)
        else:
            moves = moves_to(chosen(known, named), _ids(replicas or ""))
        if dry_run:
            show_moves(moves, as_json)
            return
        is_done = move_replicas(cluster, moves, rate, None if no_wait else timeout)
    text = f"{len(moves)} partitions {'moved' if is_done else 'on their way'}"
    output.outcome({"moves": [each.as_document() for each in moves], "done": is_done}, text, as_json=as_json)


def parse_rate(text: str | None, *, is_waiting: bool = True) -> int | None:
    """The bytes a second in --throttle."""
    if text is None:
        return None
    try:
        rate = parse_size(text)
    except ValueError as error:
        raise UsageError(f"--throttle {text!r}: {error}") from error
    if rate == 0:
        raise UsageError("--throttle 0 would never come to an end; give a size such as 50MB")
    if not is_waiting:
        raise UsageError("--throttle ends with the move, which --no-wait does not wait for; give one of them")
    return rate


def parse_partitions(names: Sequence[str]) -> list[tuple[str, int | None]]:
    parsed: list[tuple[str, int | None]] = []
    for name in names:
        topic, colon, index = name.rpartition(":")
        if not name or (colon and not (topic and index.isdecimal())):
            raise UsageError(f"{name!r} is not of the form TOPIC or TOPIC:PARTITION")
        parsed.append((topic, int(index)) if colon else (name, None))
    return parsed


def move_replicas(
    cluster: "Cluster", moves: "Sequence[Move]", rate: int | None, timeout: float | None
) -> bool:
    """Move replicas; without a time-out only start the moves. Returns whether all replicas have moved."""
    from millstream.admin.moves import move

    with shown_progress() as update:
        move(cluster, moves, bytes_per_second=rate, timeout_s=timeout, moved=update)
    return timeout is not None or not moves


@contextmanager
def shown_progress() -> Iterator[Callable[[int], None]]:
    """Draws the number of partitions moved so far, and clears it at the end."""
    progress = output.Progress("partitions moved")
    try:
        yield progress.update
    finally:
        progress.clear()


def fail_where_not_elected(failed: Sequence[tuple[str, int, str]]) -> None:
    """Fail the command if some partitions did not get the wanted leader."""
    if not failed:
        return
    for topic, index, reason in failed:
        output.note(f"{topic}:{index}: {reason}")
    output.note(
        f"partitions without the leader that was wanted: {len(failed)}. `millstream cluster status` shows which nodes "
        "are away or behind; give the command again when they are back and in sync"
    )
    raise typer.Exit(ExitCode.FAILURE)


def show_moves(moves: "Sequence[Move]", as_json: bool) -> None:
    if as_json:
        # In the format of a plan for --file.
        output.json_document({"version": 1, "partitions": [each.as_document() for each in moves]})
        return
    output.table(
        ("topic", "partition", "from", "to"),
        [(each.topic, each.index, each.before, each.replicas) for each in moves],
    )


def show_ongoing(ongoing: "Sequence[Ongoing]", as_json: bool) -> None:
    columns = ("topic", "partition", "adding", "removing")
    output.rows(columns, ongoing, as_json=as_json, nothing="no partition is being reassigned")


def show_cancelled(called_off: list[tuple[str, int]], as_json: bool) -> None:
    document = {"cancelled": [{"topic": t, "partition": i} for t, i in called_off]}
    output.outcome(document, f"{len(called_off)} reassignments called off", as_json=as_json)


def _ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise UsageError(f"--replicas {text!r} is not a list of ids such as 1,2,3") from None
