"""`millstream cluster add`, `remove`, `drain` and `found`."""

from typing import Annotated

import typer

from millstream.cli import output
from millstream.cli.cluster_replicas import (
    DryRun,
    Patience,
    PlacementName,
    Throttle,
    VirtualNodes,
    fail_where_not_elected,
    move_replicas,
    parse_rate,
    show_moves,
    shown_progress,
)
from millstream.cli.errors import CommandError, UsageError
from millstream.cli.options import AsJson, Yes, confirm
from millstream.cli.target import Target, on_cluster
from millstream.cluster.placement import VIRTUAL_NODES

NodeId = Annotated[int, typer.Argument(metavar="NODE", min=0, help="The node's id.", show_default=False)]


@on_cluster
def add(
    node: NodeId,
    target: Target,
    voter: Annotated[
        bool, typer.Option("--voter/--no-voter", help="Whether the node gets a vote in the metadata quorum.")
    ] = True,
    timeout: Patience = 60.0,
    as_json: AsJson = False,
) -> None:
    """Take a node that was started with the cluster's --seeds fully in: wait for it, and give it a vote.

    `millstream cluster rebalance` then moves partitions to it. Votes are best of an odd number.

    \b
    Examples:
      millstream serve --data ./4 --node-id 4 --listen n4:9092 --seeds n1:9092,n2:9092,n3:9092 &
      millstream cluster add 4 && millstream cluster rebalance
    """
    from millstream.admin.nodes import add_node

    with target.cluster() as cluster:
        found = add_node(cluster, node, is_voter=voter, timeout_s=timeout)
    text = f"node {node} at {found.address} is in, as a {found.quorum} of the quorum"
    output.outcome({"node": node, "quorum": found.quorum}, text, as_json=as_json)


@on_cluster
def remove(
    node: NodeId,
    target: Target,
    throttle: Throttle = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Do not move its replicas first: for a node that is lost permanently."),
    ] = False,
    placement: PlacementName = None,
    virtual_nodes: VirtualNodes = VIRTUAL_NODES,
    yes: Yes = False,
    timeout: Patience = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Take a node out: its replicas move to others, then it loses its vote and its registration, and ends.

    Asks first when run on a terminal. Its data directory cannot come back; a new one under its id can.

    \b
    Examples:
      millstream cluster remove 4
      millstream cluster remove 2 --force --yes
    """
    from millstream.admin.cluster_view import view_cluster
    from millstream.admin.nodes import check_removable, empty_and_remove, remove_node

    rate = parse_rate(throttle)
    with target.cluster() as cluster:
        view = view_cluster(cluster)
        check_removable(view, node)
        confirm(f"Take node {node} out of the cluster at {target.bootstrap}?", yes=yes)
        if force or view.broker(node) is None:
            moved = 0
            remove_node(cluster, view, node, timeout, is_lost=force)
        else:
            with shown_progress() as update:
                moved = empty_and_remove(
                    cluster, view, node, placement, virtual_nodes,
                    bytes_per_second=rate, timeout_s=timeout, moved=update,
                )  # fmt: skip
    text = f"removed node {node}, after {moved} replicas moved to others"
    output.outcome({"node": node, "moved": moved}, text, as_json=as_json)


@on_cluster
def drain(
    node: NodeId,
    target: Target,
    leaders: Annotated[
        bool, typer.Option("--leaders", help="Only let others lead what it leads; nothing is copied.")
    ] = False,
    throttle: Throttle = None,
    placement: PlacementName = None,
    virtual_nodes: VirtualNodes = VIRTUAL_NODES,
    dry_run: DryRun = False,
    timeout: Patience = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Move all replicas, or all leaders, from a node to others. It stays in the cluster, with its vote.

    New partitions may come to it; `millstream cluster rebalance` gives it its share again.

    \b
    Examples:
      millstream cluster drain 2 --leaders
      millstream cluster drain 2 --throttle 50MB
    """
    from millstream.admin.cluster_view import view_cluster
    from millstream.admin.moves import elect_leaders, placement_of
    from millstream.admin.plans import evacuated, led_by_others

    rate = parse_rate(throttle)
    with target.cluster() as cluster:
        view = view_cluster(cluster)
        if view.broker(node) is None:
            raise CommandError(f"there is no node {node}; see `millstream cluster status`")
        if leaders:
            moves = led_by_others(view, node)
        else:
            moves = evacuated(view, node, placement or placement_of(cluster, view.controller), virtual_nodes)
        if dry_run:
            show_moves(moves, as_json)
            return
        move_replicas(cluster, moves, rate, timeout)
        places = [(each.topic, each.index) for each in moves]
        failed = elect_leaders(cluster, places).failed if moves else []
    text = f"node {node}: {len(moves)} partitions {'led by others' if leaders else 'moved to others'}"
    output.outcome({"node": node, "moved": len(moves), "still_led": len(failed)}, text, as_json=as_json)
    fail_where_not_elected(failed)


@on_cluster
def found(
    nodes: Annotated[
        str,
        typer.Option("--with", metavar="NODE,...", help="Ids of the seeds that found it, most of all seeds."),
    ],
    target: Target,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Found a new cluster though not all seeds are there.

    With all seeds there a cluster is founded by itself. Without some of them the nodes wait, because those
    that are away may belong to a cluster with data: then this command would make a second, empty one. Give it
    only for a cluster that is started for the first time. The seeds that are away join when they are started
    with empty directories.

    \b
    Example:
      millstream cluster found --with 1,3 --bootstrap n1:9092
    """
    from millstream.admin.founding import found_cluster, founder_of

    words = [each.strip() for each in nodes.split(",") if each.strip()]
    if not words or not all(each.isdecimal() for each in words):
        raise UsageError(f"--with {nodes!r}: give node ids such as 1,3")
    wanted = sorted(set(map(int, words)))
    names = ", ".join(map(str, wanted))
    settings = target.settings()
    founder = founder_of(settings, wanted)
    question = (
        f"Found a new, empty cluster with the nodes {names}? Seeds that are away may belong to one already."
    )
    confirm(question, yes=yes)
    state = found_cluster(settings, founder, wanted)
    text = f"cluster {state.cluster_id} is founded with the nodes {names}"
    output.outcome({"cluster_id": state.cluster_id, "nodes": wanted}, text, as_json=as_json)
