"""`millstream telemetry`: GPU telemetry into a topic, from a CSV file or a simulated fleet."""

import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import CommandError, ExitCode, debugging, print_error
from millstream.cli.options import AsJson
from millstream.cli.pipeline_options import Bootstrap, Config
from millstream.cli.produce import Codec
from millstream.cli.settings import settings_for
from millstream.cli.telemetry_options import StreamOptions, duration_ms, parse_share
from millstream.cli.telemetry_view import TelemetryView
from millstream.client import ClientError
from millstream.pipeline.record import RecordForm
from millstream.pipeline.sources import CsvError, Timestamps
from millstream.pipeline.streamer import Limits, Summary, Target, run_stream

app = typer.Typer(help="Stream GPU telemetry into a topic.", no_args_is_help=True)

_FLEET = "Fleet"
_FILE = "CSV file"
_LIMITS = "Limits"
BAD_ROWS_SHOWN = 5


@app.callback()
def group() -> None:
    """Stream GPU telemetry into a topic."""


@app.command()
def stream(
    csv: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CSV]", help="DCGM's CSV export; a simulated fleet without.", show_default=False
        ),
    ] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar=["MSG_QUEUE_URL", "MSG_QUEUE_ADDR"],
            metavar="URL",
            help="Address of a gateway (http://HOST:PORT) or an MQTT listener (mqtt://HOST:PORT) to send"
            " through, instead of --bootstrap.",
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Topic to write to.", show_default="pipeline.topic")
    ] = None,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Partitions of the topic, when it has to be created.")
    ] = 6,
    form: Annotated[RecordForm, typer.Option("--form", help="JSON form of the records.")] = RecordForm.FLAT,
    compression: Annotated[
        Codec, typer.Option("--compression", "-z", help="Codec of the batches.")
    ] = Codec.LZ4,
    instance: Annotated[
        str, typer.Option("--instance", metavar="I/N", help="Stream the share of instance I of N.")
    ] = "1/1",
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", min=0.001, help="Points a second of this instance; for a fleet it sets the interval."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="End after so many points.", rich_help_panel=_LIMITS)
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            "--duration", metavar="TIME", help="End after this long: 90s, 2h.", rich_help_panel=_LIMITS
        ),
    ] = None,
    loops: Annotated[
        int | None,
        typer.Option(
            "--loops",
            min=1,
            help="Passes over the file.",
            show_default="no end; 1 with --replay",
            rich_help_panel=_FILE,
        ),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Keep the pauses between the rows.", rich_help_panel=_FILE)
    ] = False,
    speed: Annotated[
        float | None,
        typer.Option("--speed", min=0.001, help="Replay so many times as fast.", rich_help_panel=_FILE),
    ] = None,
    timestamps: Annotated[
        Timestamps | None,
        typer.Option(
            "--timestamps",
            rich_help_panel=_FILE,
            help="Keep the rows' times, or move them to that of sending.",
            show_default="original for one pass, else now",
        ),
    ] = None,
    hosts: Annotated[
        int | None,
        typer.Option(
            "--hosts", min=1, help="Hosts, with 8 GPUs each.", show_default="4", rich_help_panel=_FLEET
        ),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(
            "--interval",
            metavar="TIME",
            help="How often a GPU reports.",
            show_default="10s",
            rich_help_panel=_FLEET,
        ),
    ] = None,
    faults: Annotated[
        float | None,
        typer.Option(
            "--faults",
            min=0,
            rich_help_panel=_FLEET,
            help="How often things go wrong: 0 never, 1 as in a real fleet, 100 for a demonstration.",
            show_default="1",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", help="Another fleet for another number.", show_default="1", rich_help_panel=_FLEET
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            rich_help_panel=_FLEET,
            help="Begin in the past (2h, or 2026-03-01T00:00:00Z), as fast as possible, and end at the present.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="With --since: end earlier.", rich_help_panel=_FLEET),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="With --since: go on when the present is reached.", rich_help_panel=_FLEET
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Stream GPU telemetry, keyed by GPU: a DCGM export in a loop, or as it was, or a fleet that is made up.

    Ctrl-C ends it when all that was sent is acknowledged. While the cluster cannot be reached the stream waits, and
    catches up afterwards.

    \b
    Examples:
      millstream telemetry stream                                    a fleet of 4 hosts, live
      millstream telemetry stream --hosts 50 --since 24h --follow    a day of history first
      millstream telemetry stream dcgm.csv --rate 1000               the file again and again
      millstream telemetry stream dcgm.csv --replay --speed 10       the file once, ten times as fast
      millstream telemetry stream --hosts 100 --instance 2/3         the second of three instances
      millstream telemetry stream --url http://localhost:8080        through a gateway, over HTTP
      millstream telemetry stream --url mqtt://localhost:1883        over MQTT, with QoS 1
    """
    options = StreamOptions(
        csv=csv,
        rate=rate,
        loops=loops,
        replay=replay,
        speed=speed,
        timestamps=timestamps,
        hosts=hosts,
        interval=interval,
        faults=faults,
        seed=seed,
        since=since,
        until=until,
        follow=follow,
    )
    options.check()
    share = parse_share(instance)
    limits = Limits(points=count, seconds=duration_ms(duration, "--duration") / 1000 if duration else None)
    flags = {"pipeline.bootstrap": bootstrap, "pipeline.topic": topic}
    pipeline = settings_for(config, flags).pipeline
    if not debugging():
        silence_client()
    stop = stop_on_signal()
    with TelemetryView() as view:
        bad_rows = BadRows(view.note)
        target = Target(pipeline.bootstrap, pipeline.topic, partitions, compression.value, url)
        try:
            bursts = options.bursts(pipeline.topic, form, share, bad_rows)
            summary = run_stream(target, bursts, view, stop, limits)
        except (CsvError, ClientError) as error:
            raise CommandError(str(error)) from error
    show(summary, pipeline.topic, bad_rows.count, as_json=as_json)


class BadRows:
    """Counts unusable rows of a CSV file, and names the first of them."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.count = 0

    def __call__(self, text: str) -> None:
        self.count += 1
        if self.count <= BAD_ROWS_SHOWN:
            self._note(f"row left out: {text}")
        elif self.count == BAD_ROWS_SHOWN + 1:
            self._note("more rows are left out; they are counted")


def stop_on_signal() -> threading.Event:
    """An event that Ctrl-C or SIGTERM sets; a second signal ends the program at once."""
    stop = threading.Event()

    def on_signal(number: int, _: object) -> None:
        signal.signal(number, signal.default_int_handler)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return stop


def silence_client() -> None:
    """Silence librdkafka's log of failed connections, because the stream itself reports that it waits."""
    log = logging.getLogger("millstream.client")
    log.addHandler(logging.NullHandler())
    log.propagate = False


def show(summary: Summary, topic: str, bad_rows: int, *, as_json: bool) -> None:
    rate = summary.acknowledged / max(summary.seconds, 1e-3)
    if as_json:
        output.json_document(
            {
                "topic": topic,
                "acknowledged": summary.acknowledged,
                "unanswered": summary.unanswered,
                "gpus": summary.gpus,
                "rows_left_out": bad_rows,
                "seconds": round(summary.seconds, 3),
            }
        )
    else:
        left_out = f"; {bad_rows:,} rows left out" if bad_rows else ""
        output.line(
            f"{summary.acknowledged:,} points of {summary.gpus:,} GPUs acknowledged by {topic}"
            f" in {summary.seconds:.1f} s ({rate:,.0f}/s){left_out}"
        )
    if not summary.is_complete:
        reason = f": {summary.failure}" if summary.failure else "; the cluster did not answer in time"
        print_error(f"{summary.unanswered:,} points were not acknowledged{reason}")
        raise typer.Exit(ExitCode.FAILURE)
