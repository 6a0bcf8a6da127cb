"""Options shared by the commands of `millstream pipeline`, and their checks before a start."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.errors import CommandError, ExitCode, UsageError, debugging
from millstream.cli.options import parse_pairs
from millstream.cli.settings import settings_for
from millstream.config.pipeline_settings import PipelineSettings
from millstream.config.units import parse_duration_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.pipeline.stores.base import Store


Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="MILLSTREAM_CONFIG", help="Settings file; see its section pipeline."
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", "-b", envvar="MILLSTREAM_BOOTSTRAP", metavar="HOST:PORT",
        help="Address of any node of the cluster.", show_default="pipeline.bootstrap",
    ),
]  # fmt: skip
Topic = Annotated[
    str | None, typer.Option("--topic", "-t", help="Topic to read.", show_default="pipeline.topic")
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", show_default="parquet:DATA/store",
        help="parquet:DIRECTORY, influx:http://HOST:8086?db=NAME or influx2:http://HOST:8086?org=O&bucket=B.",
    ),
]  # fmt: skip
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", "-d", metavar="DIR", help="Directory of the job: checkpoint, marks, status.",
        show_default="pipeline.data",
    ),
]  # fmt: skip
Master = Annotated[
    str | None,
    typer.Option(
        "--master", help="Spark master: local[2], spark://host:7077.", show_default="pipeline.master"
    ),
]
DeclarationFile = Annotated[
    Path | None,
    typer.Option(
        "--declaration", metavar="FILE", help="YAML that says what records look like.", show_default="DCGM's"
    ),
]
SparkConf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help="Start: RFC 3339, or how long ago, such as 6h.", show_default=False
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="TIME", help="End, inclusive: RFC 3339, or how long ago.", show_default="now"
    ),
]


def require(*modules: str) -> None:
    """Fail with a one-line error if a library of the pipeline is not installed."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"this command needs {', '.join(missing)}, which the extra millstream[pipeline] installs:"
            " pip install '.[pipeline]' in a clone"
        )


def pipeline_settings(config: Path | None, **flags: object) -> PipelineSettings:
    """The section `pipeline` of the settings, overridden by the given flags."""
    given = {name: str(value) if isinstance(value, Path) else value for name, value in flags.items()}
    settings = settings_for(config, {f"pipeline.{name}": value for name, value in given.items()}).pipeline
    try:
        datetime.fromisoformat(settings.earliest_time)
    except ValueError as error:
        raise CommandError(
            f"pipeline.earliest_time is {settings.earliest_time!r}; write a time such as 2000-01-01T00:00:00Z"
        ) from error
    if settings.declaration is not None:
        _check_declaration(settings.declaration)
    with domain_errors():
        # Contacts nothing; reports an invalid URL before Spark starts.
        store_of(settings).close()
    return settings


def _check_declaration(path: str) -> None:
    from millstream.pipeline.declaration import DeclarationError, load_declaration

    try:
        load_declaration(Path(path))
    except DeclarationError as error:
        raise CommandError(str(error)) from error


def store_of(settings: PipelineSettings) -> "Store":
    from millstream.pipeline.stores.open import open_store

    return open_store(settings.store_url, data=Path(settings.data), influx_token=settings.influx_token or "")


def check_places(settings: PipelineSettings) -> None:
    """Fail if there is no store: without a job's data the API would show an empty fleet for ever."""
    kind, _, rest = settings.store_url.partition(":")
    store, data = Path(rest.partition("?")[0]), Path(settings.data)
    if kind == "parquet" and not store.is_dir() and not (store == data / "store" and data.is_dir()):
        raise CommandError(
            f"there is no store at {store}; name the directory that `millstream pipeline run` was given,"
            " with --data or --store, or start that first"
        )


def check_access(settings: PipelineSettings, *, insecure: bool) -> None:
    """Check that other machines can read telemetry only with a token, or if the user allows it."""
    from millstream.http.access import UnfitToken, check_token, is_loopback

    if settings.api_token is not None:
        try:
            check_token(settings.api_token)
        except UnfitToken as error:
            raise CommandError(f"pipeline.api_token cannot be used: {error}") from error
    elif not insecure and not is_loopback(settings.api_host):
        raise CommandError(
            f"other machines could read everything at {settings.api_host}; set pipeline.api_token"
            " (MILLSTREAM_PIPELINE_API_TOKEN), or say --insecure"
        )


def spark_session(settings: PipelineSettings, name: str, conf: Sequence[str] | None) -> "SparkSession":
    from pyspark.errors import PySparkException

    from millstream.pipeline.job.parts import open_session
    from millstream.pipeline.job.run import in_one_line
    from millstream.spark.java import NoJava

    try:
        return open_session(
            f"millstream-{name}", settings.master, parse_pairs(conf or (), "--conf"), verbose=debugging()
        )
    except (PySparkException, NoJava) as error:
        raise CommandError(
            f"Spark did not start with master {settings.master}: {in_one_line(error)}"
        ) from error


@contextmanager
def domain_errors() -> Iterator[None]:
    """Turn failures of the pipeline into errors of the command."""
    from millstream.client import ClientError
    from millstream.pipeline.files import DirectoryInUse
    from millstream.pipeline.stores.base import StoreError, StoreUnavailable

    try:
        yield
    except StoreUnavailable as error:
        raise CommandError(str(error), ExitCode.UNREACHABLE) from error
    except (StoreError, DirectoryInUse, ClientError) as error:
        raise CommandError(str(error)) from error


def stop_on_signals(stopping: threading.Event) -> None:
    """The first signal asks for a clean stop; a second one ends the process."""

    def stop(number: int, frame: object) -> None:
        del frame
        if stopping.is_set():
            raise SystemExit(128 + number)
        stopping.set()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def parse_moment(text: str, option: str, now: datetime) -> datetime:
    """The time in a text: RFC 3339 with a zone, or a duration before now."""
    try:
        return now - timedelta(milliseconds=parse_duration_ms(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageError(
            f"{option} {text!r} is neither a time such as 2025-07-18T20:42:34Z nor a duration such as 6h"
        )
    return moment.astimezone(UTC)


def parse_range(start: str | None, end: str | None) -> tuple[datetime, datetime]:
    now = datetime.now(UTC)
    if start is None:
        raise UsageError("--from is missing; name the start of the range, such as --from 24h")
    range_start, range_end = (
        parse_moment(start, "--from", now),
        parse_moment(end, "--to", now) if end else now,
    )
    if range_start > range_end:
        raise UsageError(f"--from {start} is after --to {end or 'now'}")
    return range_start, range_end
