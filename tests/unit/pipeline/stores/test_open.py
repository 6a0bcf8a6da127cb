"""Which store a URL names, and what is said of one that names none."""

from datetime import timedelta
from pathlib import Path

import pytest

from millstream.pipeline.stores.influx.store import InfluxStore
from millstream.pipeline.stores.open import InvalidStoreUrl, open_store, without_password
from millstream.pipeline.stores.parquet.store import ParquetStore


def test_parquet(tmp_path: Path) -> None:
    store = open_store(f"parquet:{tmp_path}/here?retention=30d", data=tmp_path)
    assert isinstance(store, ParquetStore)
    assert (store.root, store.upkeep.points_retention) == (tmp_path / "here", timedelta(days=30))
    assert not store.root.exists(), "nothing is created before it is used"
    store.close()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("influx:http://127.0.0.1:8086?db=telemetry", "/write?db=telemetry&precision=u"),
        (
            "influx2:http://127.0.0.1:8086?org=acme&bucket=gpu%20data&gzip=true",
            "/api/v2/write?org=acme&bucket=gpu+data&precision=us",
        ),
    ],
)
def test_influx(tmp_path: Path, url: str, path: str) -> None:
    store = open_store(url, data=tmp_path, influx_token="t")
    assert isinstance(store, InfluxStore)
    assert (store.target.write_path, store.target.authorization) == (path, "Token t")
    store.close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("telemetry", "is not a store URL"),
        ("parquet:", "is not a store URL"),
        ("postgres:x", "unknown kind 'postgres'; use parquet:"),
        ("parquet:x?retain=1d", "unknown option 'retain'; it may have retention"),
        ("parquet:x?retention=1", "retention: '1' has no unit"),
        ("parquet:x?retention=0s", "longer than 0"),
        ("influx:127.0.0.1:8086?db=x", "not an address such as"),
        ("influx:http://127.0.0.1:8086", "add ?db=NAME"),
        ("influx:http://127.0.0.1:8086?db=x&bucket=y", "unknown option 'bucket'"),
        ("influx2:http://127.0.0.1:8086?org=x", "add ?bucket=NAME"),
        ("influx:http://127.0.0.1:port?db=x", "port"),
        ("influx:http://127.0.0.1?db=x&gzip=maybe", "true or false"),
    ],
)
def test_a_wrong_url_is_explained(tmp_path: Path, url: str, reason: str) -> None:
    with pytest.raises(InvalidStoreUrl) as caught:
        open_store(url, data=tmp_path)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    url = "influx:http://me:hidden@influx.example:8086?db=x&nonsense=1"
    assert without_password(url) == "influx:http://***@influx.example:8086?db=x&nonsense=1"
    with pytest.raises(InvalidStoreUrl) as caught:
        open_store(url, data=tmp_path)
    assert "hidden" not in str(caught.value)
