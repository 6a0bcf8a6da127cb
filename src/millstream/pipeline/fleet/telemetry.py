"""The records of a fleet: each GPU reports all its metrics at every interval, one GPU after the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from millstream.pipeline.fleet.faults import Fault, FaultKind, FaultPlan
from millstream.pipeline.fleet.gpu import MEASURED, SimulatedGpu
from millstream.pipeline.fleet.inventory import DRIVER_VERSION, MODEL_NAME, Gpu, gpus_of_fleet
from millstream.pipeline.fleet.load import Job, Slot, slot_at
from millstream.pipeline.record import RecordForm, RecordTemplate, TelemetryRecord, format_time
from millstream.pipeline.share import EVERYTHING, Share

POINTS_PER_REPORT = len(MEASURED)
_SILENT = {FaultKind.DEAD_GPU, FaultKind.DEAD_HOST}


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """A fleet of `hosts` with eight GPUs each; `share` is the part of it that reports here."""

    hosts: int
    seed: int = 1
    faults: FaultPlan | None = None
    interval_ms: float = 10_000
    form: RecordForm = RecordForm.FLAT
    share: Share = EVERYTHING

    @property
    def fault_plan(self) -> FaultPlan:
        return self.faults if self.faults is not None else FaultPlan(self.seed)


@dataclass(frozen=True, slots=True)
class Report:
    """What one GPU says at one moment, a JSON record for each metric."""

    time_ms: int
    uuid: str
    records: list[bytes]


class Fleet:
    """The GPUs of one share. Their values depend on the seed, on the first moment asked for, and on the interval."""

    def __init__(self, settings: FleetSettings) -> None:
        self.settings = settings
        everywhere = gpus_of_fleet(settings.hosts, settings.seed)
        self._size = len(everywhere)
        self.gpus = [gpu for gpu in everywhere if settings.share.holds(gpu.uuid)]

    def reports(self, start_ms: int, end_ms: int | None = None) -> Iterator[Report]:
        """Reports from `start_ms` on, in the order of time, up to but without `end_ms`."""
        slots = _Slots(self.settings.seed)
        reporters = [_Reporter(gpu, self.settings, slots, start_ms / 1000) for gpu in self.gpus]
        interval_ms = self.settings.interval_ms
        for tick in count() if reporters else ():
            for reporter in reporters:
                # Spread over the interval by the place in the whole fleet, so that a share does not change it.
                time_ms = start_ms + int((tick + reporter.gpu.place / self._size) * interval_ms)
                if end_ms is not None and time_ms >= end_ms:
                    return
                report = reporter.report(time_ms)
                if report is not None:
                    yield report


class _Slots:
    """The current slot of each host, which its GPUs share."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._by_host: dict[str, Slot] = {}

    def job_of(self, gpu: Gpu, now_s: float) -> Job | None:
        slot = self._by_host.get(gpu.hostname)
        if slot is None or now_s >= slot.end_s:
            slot = self._by_host[gpu.hostname] = slot_at(self._seed, gpu.hostname, now_s)
        return slot.job_of(gpu)


class _Reporter:
    def __init__(self, gpu: Gpu, settings: FleetSettings, slots: _Slots, start_s: float) -> None:
        self.gpu = gpu
        self._form = settings.form
        self._plan = settings.fault_plan
        self._slots = slots
        self._simulated = SimulatedGpu(gpu, settings.seed, start_s)
        self._faults: list[Fault] = []
        self._faults_until_s = start_s
        self._job: Job | None = None
        self._templates = self._templates_for(None)

    def report(self, time_ms: int) -> Report | None:
        """None while the GPU or its host is dead."""
        now_s = time_ms / 1000
        if now_s >= self._faults_until_s:
            self._faults, self._faults_until_s = self._plan.around(self.gpu, now_s)
        if any(fault.kind in _SILENT for fault in self._faults):
            return None
        job = self._slots.job_of(self.gpu, now_s)
        if job is not self._job:
            self._job = job
            self._templates = self._templates_for(job)
        values = self._simulated.measure(now_s, job, self._faults)
        timestamp = format_time(time_ms)
        filled = [
            template.fill(timestamp, value) for template, value in zip(self._templates, values, strict=True)
        ]
        return Report(time_ms, self.gpu.uuid, filled)

    def _templates_for(self, job: Job | None) -> list[RecordTemplate]:
        gpu = self.gpu
        return [
            RecordTemplate.of(
                TelemetryRecord(
                    time_ms=0,
                    metric_name=metric.name,
                    uuid=gpu.uuid,
                    value=0.0,
                    gpu_id=str(gpu.index),
                    device=f"nvidia{gpu.index}",
                    model_name=MODEL_NAME,
                    hostname=gpu.hostname,
                    container=job.container if job else "",
                    pod=job.pod if job else "",
                    namespace=job.namespace if job else "",
                    labels_raw=f'DCGM_FI_DRIVER_VERSION="{DRIVER_VERSION}"',
                ),
                self._form,
            )
            for metric in MEASURED
        ]
