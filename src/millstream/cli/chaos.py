"""`millstream chaos`: a local cluster of real processes under faults, judged by what clients saw."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import CommandError, UsageError
from millstream.cli.serve import Routing


def command(
    seconds: Annotated[
        float, typer.Option("--seconds", "-s", min=1.0, help="How long there are faults.")
    ] = 60.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides which faults come, and when.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=9, help="Nodes of the cluster.")] = 3,
    replicas: Annotated[
        int | None, typer.Option("--replicas", min=1, help="Replicas; 3 or one a node.")
    ] = None,
    rate: Annotated[float, typer.Option("--rate", min=1.0, help="Messages a second and producer.")] = 100.0,
    network: Annotated[
        bool, typer.Option("--network/--no-network", help="Cut networks too; needs root and iproute2.")
    ] = True,
    client_routing: Annotated[
        Routing,
        typer.Option("--client-routing", help="How clients reach leaders: themselves, or through any node."),
    ] = Routing.DIRECT,
    topics: Annotated[
        bool,
        typer.Option("--topics/--no-topics", help="Create, grow, move and delete other topics meanwhile."),
    ] = True,
    faults: Annotated[
        str | None,
        typer.Option(
            "--faults",
            metavar="NAME,...",
            help="Only these faults, each at least once; --faults list names all.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Keep the nodes' data and logs here.")
    ] = None,
    report: Annotated[
        Path, typer.Option("--report", metavar="FILE", help="Where the HTML report goes.")
    ] = Path("chaos.html"),
) -> None:
    """Start a local cluster, load it with librdkafka's clients, do to its nodes what may happen to them, and judge.

    A run passes when every acknowledged message can be read, once, in its order, and every partition of every topic
    is led and in sync in the end. Exits with 1 when it does not.
    The timeline in the report needs matplotlib (pip install 'millstream\\[pipeline]').

    \b
    Examples:
      millstream chaos --seconds 120 --report chaos.html
      millstream chaos --seed 7 --no-network --data ./chaos
      millstream chaos --faults full-disk,failing-fsync,clock
    """
    from millstream.testing.chaos.nemesis import FAULTS, NETWORK_FAULTS, NoFaults
    from millstream.testing.chaos.report import figures, write_report
    from millstream.testing.chaos.run import ChaosPlan, run_chaos

    if faults == "list":
        for name in FAULTS:
            output.line(name)
        return
    wanted = tuple(faults.split(",")) if faults is not None else FAULTS
    if unknown := [name for name in wanted if name not in FAULTS]:
        raise UsageError(f"there is no fault {unknown[0]!r}; there are {', '.join(FAULTS)}")
    if not network and not set(wanted) - set(NETWORK_FAULTS):
        raise UsageError("--no-network leaves none of these faults")
    if replicas is not None and replicas > nodes:
        raise UsageError(f"--replicas {replicas} needs as many nodes, and there are {nodes}")
    if not report.parent.is_dir() or report.is_dir():
        raise UsageError(f"--report {report} is not a file in an existing directory; name another file")
    plan = ChaosPlan(
        seconds=seconds,
        nodes=nodes,
        replicas=replicas or min(3, nodes),
        rate=rate,
        fault_seconds=min(4.0, seconds / 4),
        seed=seed,
        routing=client_routing.value,
        uses_network=network and any(name in NETWORK_FAULTS for name in wanted),
        faults=wanted,
        has_all_faults=faults is not None,
        changes_topics=topics,
    )
    with tempfile.TemporaryDirectory(prefix="millstream-chaos-") as temporary:
        directory = data or Path(temporary)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"cannot write to {directory}: {error.strerror}") from error
        try:
            result = run_chaos(plan, directory, output.note)
        except NoFaults as error:
            raise CommandError(str(error)) from error
    missing = write_report(result, report)
    output.facts(figures(result))
    output.note(f"report: {report}" + (f" ({missing})" if missing else ""))
    for problem in [*map(str, result.anomalies), *result.unsettled][:10]:
        output.line(problem)
    if not result.is_passed:
        raise CommandError(f"the run failed: {result.why_failed}; the report has them all: {report}")
