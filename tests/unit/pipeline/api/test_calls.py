"""The calls of the query API over HTTP, with data in a real Parquet store."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from millstream.pipeline.stores.parquet.layout import EVENTS_ROOM, HOURS_ROOM, MINUTES_ROOM
from millstream.pipeline.stores.parquet.store import ParquetStore
from support.api_server import Api, running_api
from support.store_rows import TEMP, UTIL, event, point, put, rollup


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    root = tmp_path_factory.mktemp("store")
    fill(root)
    store = ParquetStore(root)
    with running_api(store) as made:
        yield made
    store.close()


def fill(root: Path) -> None:
    points = [point(i, value=i, pod="p", labels_raw='a="b"') for i in range(10)]
    points += [point(i, metric=TEMP, value=40 + i) for i in range(10)]
    points += [point(3, "GPU-2", hostname="host-2", device="nvidia1", gpu_id="1")]
    put(root, points)
    minutes = [rollup(60 * i, key=f"GPU-{j}") for i in range(3) for j in (1, 2)]
    put(root, [*minutes, rollup(0, level="fleet", key="fleet", hostname="")], room=MINUTES_ROOM)
    put(root, [rollup(0, resolution="1h")], room=HOURS_ROOM)
    put(root, [event(0, "a"), event(600, "b", severity="critical", uuid="GPU-2")], room=EVENTS_ROOM)


def telemetry(query: str, uuid: str = "GPU-1") -> str:
    return f"/api/v1/gpus/{uuid}/telemetry?{query}"


RANGE = "start_time=2026-03-01T12:00:00Z&end_time=2026-03-01T12:00:09Z"


def test_gpus_are_listed_as_collectors_expect(api: Api) -> None:
    answer = api.get("/api/v1/gpus")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == {
        "count": 2,
        "gpus": [
            {
                "uuid": "GPU-1", "gpu_id": "0", "device": "nvidia0", "modelName": "NVIDIA H100 80GB HBM3",
                "Hostname": "host-1", "last_seen": "2026-03-01T12:00:09Z",
            },
            {
                "uuid": "GPU-2", "gpu_id": "1", "device": "nvidia1", "modelName": "NVIDIA H100 80GB HBM3",
                "Hostname": "host-2", "last_seen": "2026-03-01T12:00:03Z",
            },
        ],
        "next_cursor": None,
    }  # fmt: skip
    assert [gpu["uuid"] for gpu in api.get("/api/v1/gpus?hostname=host-2").json["gpus"]] == ["GPU-2"]
    assert api.get("/api/v1/gpus?hostname=nowhere").json["count"] == 0


def test_telemetry_has_the_contracts_shape(api: Api) -> None:
    found = api.get(telemetry(f"{RANGE}&metric={UTIL}&limit=1")).json
    assert found["gpu_id"] == "GPU-1"
    assert found["count"] == 1
    assert found["data"] == [
        {
            "device_id": "nvidia0", "metric": UTIL, "value": 0.0, "time": "2026-03-01T12:00:00Z", "gpu_id": "0",
            "uuid": "GPU-1", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "host-1", "container": "", "pod": "p",
            "namespace": "", "labels_raw": 'a="b"',
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("start_time=2026-03-01T12:00:02Z&end_time=2026-03-01T12:00:04Z", [2, 3, 4]),
        ("start_time=2026-03-01T12:00:02.000001Z&end_time=2026-03-01T12:00:03.999999Z", [3]),
        ("start_time=2026-03-01T13:00:02%2B01:00&end_time=2026-03-01T11:00:02-01:00", [2]),
        ("start_time=2026-03-01T13:00:02+01:00&end_time=2026-03-01t12:00:02z", [2]),
        ("start_time=0001-01-01T00:00:00Z&end_time=9999-12-31T23:59:59Z", list(range(10))),
        ("start_time=2027-03-01T12:00:02Z&end_time=2027-03-01T12:00:04Z", []),
    ],
)
def test_times_are_inclusive_and_may_have_any_offset(api: Api, query: str, values: list[int]) -> None:
    answer = api.get(telemetry(f"{query}&metric={UTIL}"))
    assert answer.status == 200
    assert [row["value"] for row in answer.json["data"]] == values


def test_pages_join_to_the_whole(api: Api) -> None:
    rows, cursor, pages = [], "", 0
    while cursor is not None:
        page = api.get(telemetry(f"{RANGE}&limit=7&cursor={quote(cursor)}")).json
        rows += [(row["time"], row["metric"]) for row in page["data"]]
        cursor, pages = page["next_cursor"], pages + 1
    assert (len(rows), len(set(rows)), rows == sorted(rows), pages) == (20, 20, True, 3)


def test_the_other_calls(api: Api) -> None:
    assert api.get("/api/v1/hosts").json == {
        "count": 2,
        "hosts": [
            {"hostname": "host-1", "gpus": 1, "last_seen": "2026-03-01T12:00:09Z"},
            {"hostname": "host-2", "gpus": 1, "last_seen": "2026-03-01T12:00:03Z"},
        ],
    }
    assert api.get("/api/v1/metrics").json["metrics"] == [
        {"name": TEMP, "unit": "C", "kind": "gauge", "points": 10},
        {"name": UTIL, "unit": "%", "kind": "gauge", "points": 11},
    ]
    latest = api.get(f"/api/v1/latest?metric={TEMP}").json["latest"]
    assert latest == [
        {"uuid": "GPU-1", "hostname": "host-1", "metric": TEMP, "value": 49.0, "time": "2026-03-01T12:00:09Z"}
    ]
    assert api.get("/api/v1/latest?limit=2").json["count"] == 2
    fleet = api.get("/api/v1/rollups?resolution=1m&level=fleet").json
    assert fleet["rollups"] == [
        {
            "resolution": "1m", "window_start": "2026-03-01T12:00:00Z", "level": "fleet", "key": "fleet",
            "hostname": "", "metric": UTIL, "min": 1.0, "max": 3.0, "mean": 2.0, "p95": 2.9, "count": 10,
        }
    ]  # fmt: skip
    assert api.get("/api/v1/rollups?resolution=1h").json["count"] == 1
    between = "/api/v1/rollups?key=GPU-2&start_time=2026-03-01T12:01:00Z&end_time=2026-03-01T12:01:00Z"
    assert api.get(between).json["count"] == 1
    events = api.get("/api/v1/events").json
    assert [(e["event_id"], e["evidence"]) for e in events["events"]] == [
        ("b", {"max": 91}),
        ("a", {"max": 91}),
    ]
    assert [e["event_id"] for e in api.get("/api/v1/events?severity=critical").json["events"]] == ["b"]
    assert [e["event_id"] for e in api.get("/api/v1/events?uuid=GPU-1&status=open").json["events"]] == ["a"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (telemetry(""), "start_time is required"),
        (telemetry("start_time=2026-03-01T12:00:00Z"), "end_time is required"),
        (telemetry("start_time=yesterday&end_time=2026-03-01T12:00:00Z"), "start_time is 'yesterday'"),
        (telemetry("start_time=2026-03-01&end_time=2026-03-01T12:00:00Z"), "RFC 3339"),
        (telemetry("start_time=2026-03-01T12:00:00&end_time=2026-03-01T12:00:00Z"), "RFC 3339"),
        (telemetry("start_time=2026-02-30T12:00:00Z&end_time=2026-03-01T12:00:00Z"), "not a time"),
        (telemetry("start_time=0001-01-01T00:00:00%2B23:00&end_time=2026-03-01T12:00:00Z"), "not a time"),
        (telemetry("start_time=2026-03-01T12:00:01Z&end_time=2026-03-01T12:00:00Z"), "after end_time"),
        (telemetry(f"{RANGE}&limit=0"), "limit is '0'; it must be a whole number from 1 to 100000"),
        (telemetry(f"{RANGE}&limit=ten"), "limit is 'ten'"),
        (telemetry(f"{RANGE}&limit=٣"), "limit is"),
        (telemetry(f"{RANGE}&metrics=x"), "unknown parameter 'metrics'; it may be start_time, end_time, metric"),
        (telemetry(f"{RANGE}&limit=1&limit=2"), "given twice"),
        (telemetry(f"{RANGE}&cursor=nonsense"), "not given out here"),
        (telemetry(f"{RANGE}&cursor=WyJncHVzIiwiYSJd"), "another call"),
        (telemetry(f"{RANGE}&metric=%00"), "cannot be printed"),
        (telemetry(f"{RANGE}&metric=%FF"), "percent-encoded"),
        ("/api/v1/rollups?resolution=5m", "resolution is '5m'; it may be 1m, 1h"),
        ("/api/v1/rollups?level=rack", "it may be gpu, host, fleet"),
        ("/api/v1/events?status=retracted", "it may be open, closed"),
        ("/api/v1/gpus?limit=100001", "from 1 to 100000"),
        ("/api/v1/events?limit=10001", "from 1 to 10000"),
        ("/api/v1/hosts?limit=1", "unknown parameter 'limit'; this call has none"),
        ("/api/v1/gpus?cursor=WyJncHVzIiwxXQ==", "does not belong to this query"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_named(api: Api, path: str, reason: str) -> None:
    answer = api.get(quote(path, safe="/?&=%+:"))
    assert (answer.status, reason in answer.error) == (400, True), answer.error


def test_what_is_not_there(api: Api) -> None:
    unknown = api.get(telemetry(RANGE, "GPU-9"))
    assert (unknown.status, "unknown GPU 'GPU-9'" in unknown.error) == (404, True)
    assert api.get("/api/v1/nothing").status == 404
    assert "see /docs" in api.get("/api/v2/gpus").error


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(api: Api, method: str) -> None:
    answer = api.get("/api/v1/gpus", method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert answer.error == f"/api/v1/gpus does not take {method}; use GET, HEAD, OPTIONS"


def test_head_and_options(api: Api) -> None:
    head, get = api.get("/api/v1/hosts", "HEAD"), api.get("/api/v1/hosts")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(get.body)))
    options = api.get(
        "/api/v1/gpus", "OPTIONS", {"Origin": "http://elsewhere", "Access-Control-Request-Method": "GET"}
    )
    assert (options.status, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS")
    assert not any(name.startswith("access-control") for name in options.headers | get.headers)
