"""`millstream cluster`: start a local cluster, see the state of one, change its nodes and replicas."""

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import output
from millstream.cli.cluster_nodes import add, drain, found, remove
from millstream.cli.cluster_replicas import elect, reassign, rebalance
from millstream.cli.errors import CommandError, ExitCode
from millstream.cli.options import AsJson
from millstream.cli.target import Target, known_as_running, on_cluster
from millstream.client.errors import ClientError, ConnectionFailedError

if TYPE_CHECKING:
    from millstream.admin.cluster_view import ClusterView
    from millstream.cli.cluster_up import LocalNode
    from millstream.cluster.founding_messages import NodeState

_NAMES_SHOWN = 8

app = typer.Typer(
    help="Start a local cluster, and look after a running one: status, nodes, leaders, replicas.",
    no_args_is_help=True,
)


@app.command()
def up(
    nodes: Annotated[int, typer.Option("--nodes", "-n", min=1, max=99, help="How many nodes.")] = 3,
    data: Annotated[
        Path,
        typer.Option("--data", "-d", metavar="DIR", help="Directory for the data and logs of all nodes."),
    ] = Path("cluster"),
    port: Annotated[
        int | None,
        typer.Option("--port", "-p", min=1, max=65000, help="The first node's port, instead of 9092."),
    ] = None,
    http: Annotated[
        bool, typer.Option("--http", help="Serve HTTP on every node: messages, /metrics, /health.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a cluster on this machine and run it until Ctrl-C or SIGTERM, which stop all nodes cleanly.

    New topics have three replicas, two of which must be in sync, where there are that many nodes;
    MILLSTREAM_<SECTION>_<KEY> in the environment sets something else. Started again with the same
    directory it goes on where it stopped. Commands on this machine find the cluster by themselves.

    A node can be stopped and started again by itself: its settings are in DIR/node-N.yaml.

    \b
    Examples:
      millstream cluster up
      millstream cluster up --nodes 5 --data ./five --port 9192
      millstream serve --config cluster/node-2.yaml
    """
    from millstream.cli.cluster_up import LocalCluster

    factor = min(nodes, 3)
    settings: dict[str, dict[str, object]] = {
        "replication": {"default_replication_factor": factor, "min_insync_replicas": min(factor, 2)},
        # All nodes start now, so none can belong to another cluster.
        "cluster": {"founding_wait": "0ms"},
    }
    cluster = LocalCluster(data, nodes, port or 0, http, settings)
    code: int = ExitCode.OK
    take_signals_as_ctrl_c()
    try:
        cluster.start()
        cluster.wait_until_ready()
        _show_nodes(cluster.nodes, as_json)
        output.flush()
        if sys.stderr.isatty():
            output.note(f"commands find it, clients at {cluster.bootstrap}; Ctrl-C stops it")
        with known_as_running(cluster.bootstrap):
            code = cluster.watch()
    except KeyboardInterrupt:
        output.note("stopping")
    finally:
        is_clean = cluster.stop()
    raise typer.Exit(code if is_clean else ExitCode.FAILURE)


def take_signals_as_ctrl_c() -> None:
    """Stop the nodes on SIGINT, SIGTERM and SIGHUP: they run in their own sessions, and would otherwise keep running.

    A shell's background jobs ignore SIGINT by default; this handles one sent on purpose. A SIGHUP ignored by `nohup`
    stays ignored, because the cluster shall then outlive the terminal.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def _show_nodes(nodes: "list[LocalNode]", as_json: bool) -> None:
    if as_json:
        output.json_document(
            [
                {
                    "node": each.node_id,
                    "address": each.address,
                    "http": each.http,
                    "data": str(each.data),
                    "log": str(each.log_file),
                    "pid": each.process.pid if each.process else None,
                }
                for each in nodes
            ]
        )
        return
    output.table(
        ("node", "address", "http", "data", "log", "pid"),
        [
            (str(e.node_id), e.address, e.http, e.data, e.log_file, str(e.process.pid) if e.process else None)
            for e in nodes
        ],
    )


@app.command()
@on_cluster
def status(
    target: Target,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless every node and every replica is there.")
    ] = False,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch", "-w", min=0.1, metavar="SECONDS", help="Show it again and again, until Ctrl-C."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the nodes of a cluster, what they are in it, and whether all partitions are well.

    Of each partition without a leader or with damaged records, and each node that is kept out, it says why, and what
    to do. Where no node serves yet it says what each waits for.

    \b
    Examples:
      millstream cluster status
      millstream cluster status --json --check
      millstream cluster status --watch 2
    """
    is_healthy = show_status_once(target, as_json)
    while watch is not None:
        output.flush()
        time.sleep(watch)
        if sys.stdout.isatty():
            # Cursor home, and clear the rest of the screen.
            output.write(b"\x1b[H\x1b[2J")
        try:
            is_healthy = show_status_once(target, as_json)
        except (ClientError, CommandError) as error:
            # The cluster may come back, which a person who watches wants to see.
            output.note(str(error))
    if is_healthy is None or (check and not is_healthy):
        raise typer.Exit(ExitCode.FAILURE)


def show_status_once(target: Target, as_json: bool) -> bool | None:
    """Show the status; returns whether the cluster is healthy, or None if no node serves yet."""
    from millstream.admin.cluster_view import view_cluster
    from millstream.admin.founding import waiting_nodes

    settings = target.settings()
    try:
        with target.cluster() as cluster:
            view = view_cluster(cluster)
    except ConnectionFailedError:
        waiting = waiting_nodes(settings)
        if not waiting:
            raise
        _show_waiting(waiting, as_json)
        return None
    if as_json:
        output.json_document(status_document(view))
    else:
        show_status(view)
    if view.controller < 0:
        output.note(
            "a majority of the voters does not answer: nothing can be changed, and what is said of partitions is what"
            " was known last; start those that are away"
        )
    return view.is_healthy


def status_document(view: "ClusterView") -> dict[str, object]:
    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller,
        "healthy": view.is_healthy,
        "problems": view.problems,
        "brokers": [
            {
                "id": each.broker_id,
                "address": each.address,
                "rack": each.rack,
                "state": each.state,
                "fenced": each.state == "fenced",
                "quorum": each.quorum,
                "log_end": each.log_end,
                "leaders": each.leaders,
                "replicas": each.replicas,
            }
            for each in view.brokers
        ],
        "fenced": [
            {"id": each.node_id, "up": each.is_up, "reason": each.reason, "advice": each.advice}
            for each in view.fenced
        ],
        "refusing_writes": [
            {"id": each.node_id, "reason": each.reason, "advice": each.advice} for each in view.refusing
        ],
        "voters_away": list(view.voters_away),
        "topics": view.topics,
        "partitions": len(view.partitions),
        "leaderless": [each.name for each in view.leaderless],
        "without_leader": [
            {
                "topic": each.topic,
                "partition": each.index,
                "replicas": list(each.replicas),
                "reason": each.reason,
                "advice": each.advice,
            }
            for each in view.unled
        ],
        "faults": [
            {"topic": each.topic, "partition": each.partition, "reason": each.reason, "advice": each.advice}
            for each in view.faults
        ],
        "under_replicated": [each.name for each in view.under_replicated],
        "catching_up": {str(node): names for node, names in view.catching_up.items()},
        "not_preferred": len(view.not_preferred),
        "reassigning": view.reassigning,
    }


def show_status(view: "ClusterView") -> None:
    output.facts(
        {
            "cluster": view.cluster_id,
            "controller": view.controller if view.controller >= 0 else "none",
            "health": "good" if view.is_healthy else f"Degraded: {'; '.join(view.problems)}",
            "topics": view.topics,
            "partitions": len(view.partitions),
            "without a leader": _named([each.name for each in view.leaderless]),
            "with replicas out of sync": _named([each.name for each in view.under_replicated]),
            "not led by the preferred": len(view.not_preferred),
            "with damaged or missing records": _named(view.faulty),
            "being reassigned": view.reassigning,
        }
    )
    output.table(
        ("node", "address", "rack", "state", "quorum", "log end", "leaders", "replicas"),
        [
            (
                str(each.broker_id),
                each.address,
                each.rack,
                each.state,
                each.quorum or "-",
                each.log_end,
                each.leaders,
                each.replicas,
            )
            for each in view.brokers
        ],
    )
    if view.fenced:
        output.table(
            ("fenced", "why", "what to do"),
            [(f"node {each.node_id}", each.reason, each.advice) for each in view.fenced],
        )
    if view.refusing:
        output.table(
            ("refuses writes", "why", "what to do"),
            [(f"node {each.node_id}", each.reason, each.advice) for each in view.refusing],
        )
    if view.unled:
        output.table(
            ("without a leader", "why", "what to do"),
            [(each.name, each.reason, each.advice) for each in view.unled],
        )
    if view.faults:
        output.table(
            ("damaged or missing", "why", "what to do"),
            [(f"{each.topic}:{each.partition}", each.reason, each.advice) for each in view.faults],
        )
    for node, names in view.catching_up.items():
        output.note(
            f"node {node} is up and not in sync with {_named(names)}; it copies what it lacks. If it stays so, its log"
            " says why with `cannot follow`, or the leader's log with `not repaired yet`"
        )


def _named(names: list[str]) -> int | str:
    """The number of names, and the first few of them."""
    if not names:
        return 0
    return f"{len(names)}: {', '.join(names[:_NAMES_SHOWN])}" + (", ..." if len(names) > _NAMES_SHOWN else "")


@app.command()
@on_cluster
def export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="Where the files go.", show_default=False)
    ],
    target: Target,
) -> None:
    """Write brokers.json and topics.json: brokers, topics, partitions, leaders, replicas, settings, offsets.

    \b
    Example:
      millstream cluster export ./inventory
    """
    import orjson

    from millstream.admin.plans import brokers_document, topics_document

    with target.cluster() as cluster:
        documents = {"brokers.json": brokers_document(cluster), "topics.json": topics_document(cluster)}
    directory.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        (directory / name).write_bytes(
            orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        )
        output.line(str(directory / name))


def _show_waiting(waiting: "dict[str, NodeState]", as_json: bool) -> None:
    """Show what each node waits for, while none serves yet."""
    if as_json:
        output.json_document(
            {
                "healthy": False,
                "waiting": [
                    {"id": each.node_id, "address": address, "waiting_for": each.waiting_for}
                    for address, each in waiting.items()
                ],
            }
        )
        return
    output.line("no node serves yet")
    output.table(
        ("node", "address", "waiting for"),
        [(str(each.node_id), address, each.waiting_for) for address, each in waiting.items()],
    )


for command in (found, add, remove, drain, rebalance, elect, reassign):
    app.command()(command)
