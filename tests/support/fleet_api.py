"""A small fleet in a real Parquet store, and the query API over it in a process of its own."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millstream.pipeline.stores.parquet.layout import EVENTS_ROOM, MINUTES_ROOM
from millstream.runtime.ports import ReservedPorts
from support.store_rows import Row, put
from support.waiting import wait_for

HOSTS = 2
GPUS_PER_HOST = 8
MINUTES = 20
METRICS = {
    "DCGM_FI_DEV_GPU_UTIL": 1.0, "DCGM_FI_DEV_GPU_TEMP": 0.8, "DCGM_FI_DEV_POWER_USAGE": 6.0,
    "DCGM_FI_DEV_FB_USED": 800.0, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 5e9,
}  # fmt: skip
# This GPU of the last host has fallen off the bus.
SILENT_GPU = 7
SILENT_S = 150
EVENTS = [
    ("thermal_excursion", "critical", "open"),
    ("xid_burst", "critical", "closed"),
    ("power_excursion", "warning", "open"),
    ("memory_leak", "info", "closed"),
]


class FleetApi:
    """`start` after `stop` serves the same data at the same address."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._reserved = ReservedPorts()
        (self.port,) = self._reserved.ports
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, token: str | None = None) -> "FleetApi":
        command = [sys.executable, "-m", "millstream", "pipeline", "api", "--data", str(self.directory)]
        command += ["--store", f"parquet:{self.directory}/store", "--listen", f"127.0.0.1:{self.port}"]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        if token is not None:
            inherited["MILLSTREAM_PIPELINE_API_TOKEN"] = token
        with (self.directory / "api.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=inherited)
        wait_for(self._is_listening, bool, "query API")
        return self

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(90)
        self.process = None

    def _is_listening(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "api.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def fill(directory: Path, now: datetime | None = None) -> None:
    """Twenty minutes of telemetry that end now, four events, and status and history of a running job."""
    now = now or datetime.now(UTC)
    store = directory / "store"
    put(store, list(points(now)))
    put(store, list(rollups(now)), room=MINUTES_ROOM)
    put(store, list(events(now)), room=EVENTS_ROOM)
    write_status(directory, now)


def write_status(directory: Path, updated_at: datetime) -> None:
    status = {
        "updated_at": updated_at.isoformat(),
        "batch_id": 41,
        "rows_per_second": 4321.0,
        "state": "running",
        "running": True,
        "lag": 42,
        "lag_by_partition": {"telemetry-0": 12, "telemetry-1": 30},
        "watermark": (updated_at - timedelta(minutes=10)).isoformat(),
        "counts": {"valid": 100_000, "bad": 3, "sentinel": 7, "late": 0},
        "last_error": None,
    }
    minutes = [
        updated_at.replace(second=0, microsecond=0) - timedelta(minutes=n) for n in range(MINUTES, 0, -1)
    ]
    rows = [{"time": f"{time:%Y-%m-%dT%H:%M}:00Z", "rows_per_second": 4000.0, "lag": 40} for time in minutes]
    (directory / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fresh = directory / "status.json.new"
    fresh.write_text(json.dumps(status))
    os.replace(fresh, directory / "status.json")


def uuid_of(host: int, gpu: int) -> str:
    return f"GPU-{host}{gpu}aaaaaa-0000-4000-8000-00000000000{gpu}"


def _value(metric: str, gpu: int, moment: datetime) -> float:
    load = 50 + 5 * gpu + 10 * math.sin(moment.timestamp() / 300)
    return load * METRICS[metric]


def points(now: datetime) -> Iterator[Row]:
    for seconds_ago in range(0, 360, 10):
        moment = now - timedelta(seconds=seconds_ago)
        for host, gpu in _gpus():
            if (host, gpu) == (HOSTS - 1, SILENT_GPU) and seconds_ago < SILENT_S:
                continue
            for metric in METRICS:
                yield {
                    "time": moment, "uuid": uuid_of(host, gpu), "metric": metric, "value": _value(metric, gpu, moment),
                    "gpu_id": str(gpu), "device": f"nvidia{gpu}", "model_name": "NVIDIA H100 80GB HBM3",
                    "hostname": f"node-{host}", "container": "", "pod": "", "namespace": "", "labels_raw": "",
                    "source_partition": 0, "source_offset": seconds_ago,
                }  # fmt: skip


def rollups(now: datetime) -> Iterator[Row]:
    first = now.replace(second=0, microsecond=0)
    for minutes_ago in range(1, MINUTES):
        start = first - timedelta(minutes=minutes_ago)
        keys = [("fleet", "fleet", "")]
        keys += [("host", f"node-{host}", f"node-{host}") for host in range(HOSTS)]
        keys += [("gpu", uuid_of(host, gpu), f"node-{host}") for host, gpu in _gpus()]
        for level, key, hostname in keys:
            for metric in METRICS:
                mean = _value(metric, 4, start)
                yield {
                    "resolution": "1m", "window_start": start, "level": level, "key": key, "hostname": hostname,
                    "metric": metric, "min": mean - 9, "max": mean + 9, "mean": mean, "p95": mean + 7, "count": 6,
                }  # fmt: skip


def events(now: datetime) -> Iterator[Row]:
    for number, (kind, severity, status) in enumerate(EVENTS):
        yield {
            "event_id": f"event-{number}", "kind": kind, "severity": severity, "uuid": uuid_of(0, number),
            "hostname": "node-0", "start": now - timedelta(minutes=5 + number), "end": now - timedelta(minutes=1),
            "status": status, "message": f"what happened to GPU {number}", "evidence": '{"peak_celsius": 96.5}',
        }  # fmt: skip


def _gpus() -> Iterator[tuple[int, int]]:
    return ((host, gpu) for host in range(HOSTS) for gpu in range(GPUS_PER_HOST))
