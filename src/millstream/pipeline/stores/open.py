"""`open_store`: the store that a URL names."""

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from millstream.config.units import parse_duration_ms
from millstream.pipeline.stores.base import Store
from millstream.pipeline.stores.errors import StoreError

if TYPE_CHECKING:
    from millstream.pipeline.stores.influx.target import InfluxTarget

FORMS = (
    "parquet:DIRECTORY, influx:http://HOST:8086?db=NAME, or influx2:http://HOST:8086?org=ORG&bucket=BUCKET"
)


class InvalidStoreUrl(StoreError, ValueError):
    """A URL that names no store, or an option it does not have."""


def without_password(url: str) -> str:
    """The URL as it may be shown to anybody."""
    return re.sub(r"//[^/?#]*@", "//***@", url)


def open_store(
    url: str, *, data: Path, influx_token: str = "", lake_retention: timedelta | None = None
) -> Store:
    """The store at `url`; nothing is contacted or created before it is used.

    `data` is the pipeline's directory: the InfluxDB store keeps the points of the last `lake_retention` there (None:
    all), to compute rollups from again. What is older it reads back from the server.
    """
    kind, separator, rest = url.partition(":")
    url = without_password(url)
    if not separator or not rest:
        raise InvalidStoreUrl(f"store {url!r} is not a store URL; use {FORMS}")
    match kind:
        case "parquet":
            return _parquet(url, rest)
        case "influx" | "influx2":
            target = _influx_target(url, rest, influx_token, is_v2=kind == "influx2")
            from millstream.pipeline.stores.influx.lake import Lake
            from millstream.pipeline.stores.influx.store import InfluxStore

            return InfluxStore(target, Lake(data / "lake", lake_retention))
        case _:
            raise InvalidStoreUrl(f"store {url!r} has the unknown kind {kind!r}; use {FORMS}")


def _influx_target(url: str, rest: str, token: str, *, is_v2: bool) -> "InfluxTarget":
    from millstream.pipeline.stores.influx.target import parse_target

    address, _, query = rest.partition("?")
    options = read_options(url, query, {*(("org", "bucket") if is_v2 else ("db",)), "gzip"})
    try:
        return parse_target(
            address,
            database=options.get("bucket" if is_v2 else "db", ""),
            organisation=options.get("org", "") if is_v2 else None,
            token=token,
            gzip=_switch(options.get("gzip")),
        )
    except ValueError as error:
        raise InvalidStoreUrl(f"store {url!r}: {error}") from error


def _switch(value: str | None) -> bool | None:
    if value is None:
        return None
    if value not in {"true", "false"}:
        raise ValueError(f"gzip is {value!r}; it may be true or false")
    return value == "true"


def _parquet(url: str, rest: str) -> Store:
    from millstream.pipeline.stores.parquet.compaction import Upkeep
    from millstream.pipeline.stores.parquet.store import ParquetStore

    directory, _, query = rest.partition("?")
    options = read_options(url, query, {"retention", "rollups_retention"})
    return ParquetStore(
        Path(directory),
        Upkeep(
            points_retention=_duration(url, "retention", options),
            rollups_retention=_duration(url, "rollups_retention", options),
        ),
    )


def read_options(url: str, query: str, known: set[str]) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in known:
            names = ", ".join(sorted(known))
            raise InvalidStoreUrl(f"store {url!r} has the unknown option {name!r}; it may have {names}")
    return options


def _duration(url: str, name: str, options: dict[str, str]) -> timedelta | None:
    if name not in options:
        return None
    try:
        duration_ms = parse_duration_ms(options[name])
    except ValueError as error:
        raise InvalidStoreUrl(f"store {url!r}: {name}: {error}") from error
    if duration_ms == 0 or duration_ms < -1:
        raise InvalidStoreUrl(f"store {url!r}: {name} must be longer than nothing, or unlimited")
    return timedelta(milliseconds=duration_ms) if duration_ms > 0 else None
