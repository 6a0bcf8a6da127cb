"""What the commands on a running cluster share: moving replicas, electing leaders, and how both are shown."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from millstream.cli.cluster_calls import ClusterCalls
    from millstream.cli.cluster_moves import Move, Ongoing

_BROKER = 4
_PLACEMENT = "log.placement"

Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle", metavar="SIZE", help="At most this many bytes a second and broker, such as 50MB."
    ),
]
Patience = Annotated[float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait.")]
PlacementName = Annotated[
    str | None,
    typer.Option(
        "--placement",
        help="How replicas are spread: balanced, ring or modulo.",
        show_default="as the cluster places new partitions",
    ),
]
VirtualNodes = Annotated[
    int, typer.Option("--virtual-nodes", min=1, help="Points of each broker on the ring, for placement ring.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def check_placement(given: str | None) -> None:
    from millstream.cluster.placement import PLACEMENTS

    if given is not None and given not in PLACEMENTS:
        raise UsageError(f"--placement {given!r} is unknown; use {', '.join(PLACEMENTS)}")


def chosen_placement(calls: "ClusterCalls", given: str | None, controller: int) -> str:
    """What the user named, or what the controller places new partitions by."""
    from millstream.cluster.placement import PLACEMENTS

    if given is not None:
        return given
    resource = {
        "resource_type": _BROKER,
        "resource_name": str(controller),
        "configuration_keys": [_PLACEMENT],
    }
    described = calls.call(
        "describe_configs", resources=[resource], include_synonyms=False, include_documentation=False
    )
    found = [each.value for result in described.results for each in result.configs if each.name == _PLACEMENT]
    return str(found[0]) if found and found[0] else PLACEMENTS[0]


def move_replicas(
    calls: "ClusterCalls", moves: "list[Move]", rate: str | None, timeout: float, *, is_waiting: bool
) -> bool:
    """Whether all replicas are where they belong; the limit of speed ends with the move."""
    from millstream.cli import cluster_moves
    from millstream.config.units import parse_size

    if not moves:
        return True
    try:
        limit = None if rate is None else parse_size(rate)
    except ValueError as error:
        raise UsageError(f"--throttle {rate!r}: {error}") from error
    if limit == 0:
        raise UsageError("--throttle 0 would never come to an end; give a size such as 50MB")
    if limit is not None and not is_waiting:
        raise UsageError("--throttle ends with the move, which --no-wait does not wait for; give one of them")
    try:
        cluster_moves.start(calls, moves, limit)
        if not is_waiting:
            return False
        is_done = cluster_moves.wait(calls, timeout, output.Progress("partitions moved"))
    finally:
        if limit is not None:
            cluster_moves.unthrottle(calls, moves)
    if not is_done:
        raise CommandError(
            f"not finished after {timeout:g} s; it goes on without a limit of speed, and"
            " `millstream cluster reassign` shows how far it is"
        )
    return True


def elect_leaders(
    calls: "ClusterCalls", wanted: list[tuple[str, int]] | None, *, is_unclean: bool
) -> tuple[list[tuple[str, int]], list[tuple[str, int, str]]]:
    """Those elected, and those that could not be; where an election was not needed nothing failed."""
    from millstream.cli.cluster_calls import reason_of
    from millstream.protocol.errors import ErrorCode

    topics: dict[str, list[int]] = {}
    for topic, index in wanted or ():
        topics.setdefault(topic, []).append(index)
    asked = None if wanted is None else [{"topic": t, "partitions": tuple(p)} for t, p in topics.items()]
    reply = calls.checked(
        "cannot elect leaders", "elect_leaders", election_type=int(is_unclean), topic_partitions=asked
    )
    elected, failed = [], []
    for topic in reply.replica_election_results:
        for each in topic.partition_result:
            if each.error_code == ErrorCode.NONE:
                elected.append((topic.topic, each.partition_id))
            elif each.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                failed.append((topic.topic, each.partition_id, reason_of(each)))
    return elected, failed


def show_moves(moves: "list[Move]", as_json: bool) -> None:
    if as_json:
        # As a plan that --file reads.
        output.json_document({"version": 1, "partitions": [each.as_document() for each in moves]})
        return
    output.table(
        ("topic", "partition", "from", "to"),
        [(each.topic, each.index, each.before, each.replicas) for each in moves],
    )


def show_ongoing(ongoing: "list[Ongoing]", as_json: bool) -> None:
    columns = ("topic", "partition", "adding", "removing")
    if as_json:
        output.json_document([dict(zip(columns, row, strict=True)) for row in ongoing])
    elif not ongoing and sys.stdout.isatty():
        output.note("no partition is being reassigned")
    else:
        output.table(columns, ongoing)


def show_cancelled(called_off: list[tuple[str, int]], as_json: bool) -> None:
    if as_json:
        output.json_document({"cancelled": [{"topic": t, "partition": i} for t, i in called_off]})
    else:
        output.line(f"{len(called_off)} reassignments called off")
