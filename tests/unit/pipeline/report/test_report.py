"""The report of a small fleet, from the store to the file."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from millstream.pipeline.report import NothingToReport, last_day, write_report
from millstream.pipeline.report.figures import Figures, read_figures
from millstream.pipeline.report.page import line_chart
from millstream.pipeline.stores.parquet.layout import EVENTS_ROOM, HOURS_ROOM, MINUTES_ROOM
from millstream.pipeline.stores.parquet.store import ParquetStore
from millstream.pipeline.stores.rows import Severity
from support.store_rows import TEMP, UTIL, Row, at, event, point, put, rollup

POWER = "DCGM_FI_DEV_POWER_USAGE"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
MEMORY = "DCGM_FI_DEV_FB_USED"
MINUTES = 120
WATTS = 600.0
GPUS = (("GPU-b", "0", "host-2"), ("GPU-a", "1", "host-1"), ("GPU-c", "0", "host-1"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ParquetStore]:
    made = ParquetStore(tmp_path / "store")
    yield made
    made.close()


def fill(store: ParquetStore, *, resolution: str = "1m", minutes: int = MINUTES) -> None:
    """GPU-b is hot, GPU-c idle and without a counter; the counter of GPU-a starts again after an hour."""
    step = 60 if resolution == "1m" else 3600
    rows: list[Row] = []
    for number in range(minutes * 60 // step):
        second = number * step
        total = 0
        for uuid, _, hostname in GPUS:
            for metric, value in _values(uuid, second).items():
                growth = WATTS * step * 1000 if metric == ENERGY else 0
                rows.append(
                    rollup(
                        second, resolution=resolution, key=uuid, hostname=hostname, metric=metric, min=value,
                        mean=value, max=value + growth, count=step // 10,
                    )
                )  # fmt: skip
                total += step // 10
        rows.append(rollup(second, resolution=resolution, level="fleet", key="fleet", count=total))
    put(store.root, rows, room=MINUTES_ROOM if resolution == "1m" else HOURS_ROOM)


def _values(uuid: str, second: float) -> dict[str, float]:
    values = {
        UTIL: 1.0 if uuid == "GPU-c" else 80.0,
        TEMP: 91.0 if uuid == "GPU-b" else 50.0,
        POWER: WATTS,
        MEMORY: 2048.0,
    }
    if uuid != "GPU-c":
        is_reset = uuid == "GPU-a" and second >= 3600
        values[ENERGY] = WATTS * 1000 * (second - 3600 if is_reset else second + 10_000)
    return values


def put_points(store: ParquetStore) -> None:
    """One at the end of the range for each GPU, so that the store knows them; the fourth is long silent."""
    rows = [
        point(60 * MINUTES - 5, uuid, gpu_id=number, hostname=hostname) for uuid, number, hostname in GPUS
    ]
    put(store.root, [*rows, point(-1e6, "GPU-d", hostname="host-3")])


def read_all(store: ParquetStore, most_rows: int = 10**6) -> Figures:
    return read_figures(store, at(0), at(60 * MINUTES), lambda _: None, most_rows)


class Outline(HTMLParser):
    """What a page is made of: elements and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_figures_of_a_fleet(store: ParquetStore) -> None:
    fill(store)
    put_points(store)
    figures = read_all(store)
    assert [each.gpu.uuid for each in figures.gpus] == ["GPU-c", "GPU-a", "GPU-b"], "by host and number"
    assert figures.hosts == {"host-1", "host-2"}
    assert [gpu.uuid for gpu in figures.unheard] == ["GPU-d"]
    assert figures.points == MINUTES * 6 * 14
    assert figures.mean_utilisation == pytest.approx((80 + 80 + 1) / 3)
    assert [each.idle_share for each in figures.gpus] == [1, 0, 0]
    assert [each.gauges[TEMP].highest for each in figures.gpus] == [50, 50, 91]
    assert len(figures.moments) == MINUTES


def test_energy_of_counters_with_a_reset_and_of_power(store: ParquetStore) -> None:
    fill(store)
    put_points(store)
    gpus = read_all(store).gpus
    each = WATTS / 1000 * MINUTES / 60
    assert [gpu.energy_kwh for gpu in gpus] == pytest.approx([each] * 3)
    assert [gpu.counted_kwh is None for gpu in gpus] == [True, False, False]


def test_a_counter_that_was_seen_once_says_nothing(store: ParquetStore) -> None:
    rows = [
        rollup(0, level=level, key=key, metric=ENERGY, min=5e9, max=5e9, count=1)
        for level, key in (("gpu", "GPU-1"), ("fleet", "fleet"))
    ]
    put(store.root, rows, room=MINUTES_ROOM)
    [gpu] = read_figures(store, at(0), at(60), lambda _: None).gpus
    assert gpu.counted_kwh is None


def test_a_chart_has_gaps_and_dots_and_round_numbers() -> None:
    drawn = line_chart("Heat", "C", "blue", {at(0): 3.0, at(60): float("nan"), at(120): 7.0, at(180): 9.3})
    assert drawn.count("<polyline") == 2
    assert ">10 C</text>" in drawn
    assert line_chart("Heat", "C", "blue", {at(0): float("nan")}) == ""


def test_hours_tell_the_same_as_minutes(store: ParquetStore, tmp_path: Path) -> None:
    fill(store)
    fill(store, resolution="1h")
    put_points(store)
    minutes, hours = read_all(store), read_all(store, most_rows=1)
    assert (len(hours.moments), hours.points) == (2, minutes.points)
    assert hours.mean_utilisation == pytest.approx(minutes.mean_utilisation)
    assert hours.energy_kwh == pytest.approx(minutes.energy_kwh)
    assert [each.gpu for each in hours.gpus] == [each.gpu for each in minutes.gpus]


def test_the_file_stands_alone_and_can_be_read_aloud(store: ParquetStore, tmp_path: Path) -> None:
    fill(store)
    put_points(store)
    put(
        store.root,
        [
            event(600, "e1", uuid="GPU-b", severity="critical"),
            event(60, "e2", uuid="GPU-a", kind="xid_burst"),
        ],
        room=EVENTS_ROOM,
    )
    path = tmp_path / "report.html"
    said: list[str] = []
    summary = write_report(store, *last_day(store), path, said.append)
    text = path.read_text()
    assert (len(summary.hosts), len(summary.gpus), summary.points) == (2, 3, MINUTES * 6 * 14)
    assert summary.energy_kwh == pytest.approx(3 * WATTS / 1000 * MINUTES / 60)
    assert [summary.count(severity) for severity in Severity] == [0, 1, 1]
    assert "drawing" in said
    elements = Outline(text).elements
    tags = [tag for tag, _ in elements]
    assert not {"script", "link", "iframe", "object"} & set(tags)
    for tag, attributes in elements:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.findall(r"url\((?!#)", text)
    assert not re.findall(r"@import|#000[1234]0\d", text), "no colour is left that the page does not set"
    drawings = [attributes for tag, attributes in elements if tag == "svg"]
    assert len(drawings) == 3
    assert all(attributes.get("role") == "img" for attributes in drawings)
    assert tags.count("desc") == 3
    assert "max 91" in text, "the evidence of an event"
    assert "host-2 / GPU 0, which reached 91 °C" in text


def test_names_from_outside_are_text(store: ParquetStore, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    put(
        store.root,
        [
            rollup(0, level=level, key=key, hostname=evil)
            for level, key in (("gpu", evil), ("fleet", "fleet"))
        ],
        room=MINUTES_ROOM,
    )
    put(
        store.root,
        [event(0, "e1", uuid=evil, hostname=evil, message=evil, evidence=evil, kind=evil)],
        room=EVENTS_ROOM,
    )
    path = tmp_path / "report.html"
    write_report(store, at(0), at(60), path)
    assert "<script" not in path.read_text()


def test_a_single_point_of_an_unknown_metric_is_enough(store: ParquetStore, tmp_path: Path) -> None:
    put(store.root, [rollup(0, level="fleet", key="fleet", metric="OTHER", count=1)], room=MINUTES_ROOM)
    summary = write_report(store, at(0), at(60), tmp_path / "report.html")
    assert (summary.points, summary.gpus, summary.energy_kwh) == (1, [], 0)


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (at(0), at(3600), "no rollups of that time yet"),
        (at(-7200), at(-3600), "the newest point is of 2026-03-01 12:10"),
        (at(60), at(0), "before it begins"),
    ],
)
def test_nothing_to_report_says_why(
    store: ParquetStore, tmp_path: Path, start: datetime, end: datetime, reason: str
) -> None:
    put(store.root, [point(600)])
    path = tmp_path / "report.html"
    path.write_text("the last one")
    with pytest.raises(NothingToReport, match=reason):
        write_report(store, start, end, path)
    assert path.read_text() == "the last one"
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_an_empty_store_has_nothing_to_report(store: ParquetStore, tmp_path: Path) -> None:
    with pytest.raises(NothingToReport, match="the store is empty"):
        last_day(store)
    with pytest.raises(NothingToReport, match="the store is empty"):
        write_report(store, at(0), at(60), tmp_path / "report.html")


def test_the_last_day_ends_with_the_newest_point(store: ParquetStore) -> None:
    put(store.root, [point(90)])
    assert last_day(store) == (at(120) - timedelta(hours=24), at(120))
