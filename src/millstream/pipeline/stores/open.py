"""`open_store`: the store that a URL names."""

import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl

from millstream.config.units import parse_duration_ms
from millstream.pipeline.stores.base import Store, StoreError

FORMS = (
    "parquet:DIRECTORY, influx:http://HOST:8086?db=NAME, or influx2:http://HOST:8086?org=ORG&bucket=BUCKET"
)
_OPTIONS = {
    "parquet": ("retention", "rollups_retention"),
    "influx": ("db", "gzip"),
    "influx2": ("bucket", "gzip", "org"),
}


class InvalidStoreUrl(StoreError, ValueError):
    """A URL that names no store, or an option it does not have."""


def without_password(url: str) -> str:
    """The URL without its password, to be shown."""
    return re.sub(r"//[^/?#]*@", "//***@", url)


def open_store(
    url: str, *, data: Path, influx_token: str = "", lake_retention: timedelta | None = None
) -> Store:
    """The store at `url`; nothing is contacted or created before it is used.

    `data` is the pipeline's directory: the InfluxDB store keeps the points of the last `lake_retention` there (None:
    all) to compute rollups again. It reads older points back from the server.
    """
    kind, _, rest = url.partition(":")
    shown = without_password(url)
    if not rest:
        raise InvalidStoreUrl(f"store {shown!r} is not a store URL; use {FORMS}")
    if kind not in _OPTIONS:
        raise InvalidStoreUrl(f"store {shown!r} has the unknown kind {kind!r}; use {FORMS}")
    place, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS[kind]:
            known = ", ".join(_OPTIONS[kind])
            raise InvalidStoreUrl(f"store {shown!r} has the unknown option {name!r}; it may have {known}")
    try:
        if kind == "parquet":
            from millstream.pipeline.stores.parquet.compaction import Upkeep
            from millstream.pipeline.stores.parquet.store import ParquetStore

            kept = {name: _duration(name, options.get(name)) for name in _OPTIONS[kind]}
            return ParquetStore(
                Path(place),
                Upkeep(points_retention=kept["retention"], rollups_retention=kept["rollups_retention"]),
            )
        from millstream.pipeline.stores.influx.connection import parse_target
        from millstream.pipeline.stores.influx.store import InfluxStore

        target = parse_target(place, options, influx_token, is_v2=kind == "influx2")
        return InfluxStore(target, data / "lake", lake_retention)
    except ValueError as error:
        raise InvalidStoreUrl(f"store {shown!r}: {error}") from error


def _duration(name: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        duration_ms = parse_duration_ms(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if duration_ms == 0 or duration_ms < -1:
        raise ValueError(f"{name} must be longer than 0, or unlimited")
    return timedelta(milliseconds=duration_ms) if duration_ms > 0 else None
