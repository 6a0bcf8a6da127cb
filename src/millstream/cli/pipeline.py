"""`millstream pipeline`: the Spark job that stores telemetry, its batch jobs, and the query API."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import CommandError, ExitCode
from millstream.cli.options import parse_address
from millstream.cli.pipeline_options import (
    Bootstrap,
    Config,
    Data,
    DeclarationFile,
    From,
    Master,
    SparkConf,
    StoreUrl,
    To,
    Topic,
    check_access,
    check_places,
    domain_errors,
    parse_range,
    pipeline_settings,
    require,
    spark_session,
    stop_on_signals,
    store_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(help="Store telemetry with Spark, compute from it, and query it.", no_args_is_help=True)


class Source(StrEnum):
    LOG = "log"
    STORE = "store"


@app.callback()
def group() -> None:
    """Store telemetry with Spark, compute from it, and query it."""


@app.command()
def run(
    config: Config = None,
    bootstrap: Bootstrap = None,
    topic: Topic = None,
    store: StoreUrl = None,
    data: Data = None,
    master: Master = None,
    trigger: Annotated[
        str | None,
        typer.Option("--trigger", metavar="TIME", help="How often to look for records.", show_default="1s"),
    ] = None,
    starting_offsets: Annotated[
        str | None,
        typer.Option(
            "--starting-offsets", help="Without a checkpoint: earliest or latest.", show_default="earliest"
        ),
    ] = None,
    max_offsets: Annotated[
        int | None, typer.Option("--max-offsets-per-trigger", min=1, help="Most records of a micro-batch.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Read what is there now, bring everything up to date, and end.")
    ] = False,
    declaration: DeclarationFile = None,
    conf: SparkConf = None,
) -> None:
    """Read telemetry from its topic, check it, and keep points, rollups and health events in a store.

    SIGTERM or Ctrl-C stops it cleanly. When the broker or the store is down it says so and tries again; a topic that is
    not there is waited for, or with --once an error.

    \b
    Examples:
      millstream pipeline run --bootstrap localhost:9092
      millstream pipeline run --store 'influx:http://localhost:8086?db=telemetry' --once
      millstream pipeline run --master spark://spark-1:7077 --data /shared/pipeline
    """
    require("pyspark", "pyarrow", "duckdb")
    settings = pipeline_settings(
        config, bootstrap=bootstrap, topic=topic, store=store, data=data, master=master, trigger=trigger,
        starting_offsets=starting_offsets, max_offsets_per_trigger=max_offsets, declaration=declaration,
    )  # fmt: skip
    from millstream.cli.pipeline_view import RunView
    from millstream.pipeline.job.run import PipelineRun

    def open_spark() -> "SparkSession":
        spark = spark_session(settings, "pipeline", conf)
        # Spark has replaced the handler of SIGINT.
        stop_on_signals(job.stopping)
        return spark

    with RunView() as view:
        job = PipelineRun(settings, view, open_spark, once=once)
        stop_on_signals(job.stopping)
        with domain_errors():
            complete = job.run()
        view.note("stopped" if complete else "stopped with rollups still to compute")
    raise typer.Exit(ExitCode.OK if complete else ExitCode.FAILURE)


@app.command()
def backfill(
    start: From = None,
    end: To = None,
    source: Annotated[
        Source, typer.Option("--source", help="Read points from the log again, or take those of the store.")
    ] = Source.STORE,
    config: Config = None,
    bootstrap: Bootstrap = None,
    topic: Topic = None,
    store: StoreUrl = None,
    data: Data = None,
    master: Master = None,
    declaration: DeclarationFile = None,
    conf: SparkConf = None,
) -> None:
    """Compute the rollups and health events of a time range again; no run may use the same --data meanwhile.

    \b
    Examples:
      millstream pipeline backfill --from 24h
      millstream pipeline backfill --from 2025-07-18T00:00:00Z --to 2025-07-19T00:00:00Z --source log
    """
    require("pyspark", "pyarrow", "duckdb")
    range_start, range_end = parse_range(start, end)
    settings = pipeline_settings(
        config,
        bootstrap=bootstrap,
        topic=topic,
        store=store,
        data=data,
        master=master,
        declaration=declaration,
    )
    from millstream.cli.pipeline_view import WorkView
    from millstream.pipeline.job.backfill import BackfillSource
    from millstream.pipeline.job.backfill import backfill as compute

    spark = spark_session(settings, "backfill", conf)
    with domain_errors():
        done = compute(spark, settings, range_start, range_end, BackfillSource(source), WorkView().update)
    if done.rejected:
        output.note(f"the store refused {done.rejected:,} points; they are in {settings.dead_letter_topic}")
    output.note(
        f"computed {done.minutes:,} minutes again" if done.minutes else "there are no points in this range"
    )


@app.command()
def report(
    start: From = None,
    end: To = None,
    file: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML file to write.")
    ] = Path("report.html"),
    config: Config = None,
    store: StoreUrl = None,
    data: Data = None,
) -> None:
    """Write a report of the fleet: utilisation, the hottest and idlest GPUs, energy and events, in one HTML file.

    \b
    Examples:
      millstream pipeline report --from 24h
      millstream pipeline report --from 2025-07-18T00:00:00Z --to 2025-07-19T00:00:00Z -o july-18.html
    """
    require("duckdb")
    settings = pipeline_settings(config, store=store, data=data)
    from millstream.cli.pipeline_view import StageView
    from millstream.pipeline.report import NothingToReport, last_day, write_report

    with domain_errors():
        opened = store_of(settings)
        try:
            wanted = last_day(opened) if start is None and end is None else parse_range(start, end)
            found = write_report(opened, *wanted, file, StageView().say)
        except NothingToReport as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(
                f"cannot write {file}: {error.strerror or error}; choose another --output"
            ) from error
        finally:
            opened.close()
    output.note(
        f"{len(found.gpus):,} GPUs of {len(found.hosts):,} hosts, {found.points:,} points,"
        f" {found.start:%Y-%m-%d %H:%M} to {found.end:%Y-%m-%d %H:%M} UTC"
    )
    output.line(str(file))


@app.command()
def api(
    config: Config = None,
    store: StoreUrl = None,
    data: Data = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", "-l", metavar="HOST:PORT", help="Address to listen on.", show_default="127.0.0.1:8090"
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let other machines read everything without a token.")
    ] = False,
) -> None:
    """Serve the query API, its documentation and the web console. SIGTERM or Ctrl-C stops it.

    Callers from other machines need the token of the setting pipeline.api_token.

    \b
    Examples:
      millstream pipeline api
      MILLSTREAM_PIPELINE_API_TOKEN=$(cat token) millstream pipeline api --listen 0.0.0.0:8090
      millstream pipeline api --store 'influx:http://localhost:8086?db=telemetry'
    """
    require("duckdb")
    host, port = parse_address(listen, "--listen") if listen is not None else (None, None)
    settings = pipeline_settings(config, store=store, data=data, api_host=host, api_port=port)
    check_access(settings, insecure=insecure)
    check_places(settings)
    from millstream.console import static_dir
    from millstream.pipeline.api.server import serve_api

    with domain_errors():
        opened = store_of(settings)
    page = static_dir()
    if page is None:
        output.note(
            "this installation has no web console: Node 20.19 or newer, or the page's packages, could not be had when"
            " it was installed; `pip install -v .` tells which"
        )
    try:
        serve_api(
            opened, settings.api_host, settings.api_port,
            status_path=Path(settings.data) / "status.json", console_dir=page, token=settings.api_token,
            allowed_hosts=settings.api_allowed_hosts,
            on_ready=lambda host, port: output.note(f"ready: http://{host}:{port}/ and http://{host}:{port}/docs"),
        )  # fmt: skip
    except OSError as error:
        raise CommandError(
            f"cannot listen on {settings.api_host}:{settings.api_port}: {error.strerror or error};"
            " choose another --listen"
        ) from error
    finally:
        opened.close()
