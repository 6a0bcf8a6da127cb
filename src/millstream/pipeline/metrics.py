"""The metrics of a GPU that the pipeline knows: dcgm-exporter's default counters."""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """A known metric; a value outside `minimum` to `maximum` (inclusive) cannot be a measurement of it."""

    name: str
    unit: str
    kind: MetricKind
    minimum: float
    maximum: float


SENTINEL_RANGES = (
    (2147483632.0, 2147483647.0),
    (140737488355328.0, 140737488355343.0),
    (9223372036854774784.0, 9223372036854775807.0),
)
"""DCGM's blanks for int32, double and int64 ("blank", "not found", "not supported", "not permitted"), inclusive.

As doubles all int64 blanks are 2^63, so its range starts at the double below. A value in these ranges that is
plausible for its metric (an energy counter can pass 2^31 mJ) is a measurement.
"""

METRICS: dict[str, Metric] = {}
"""All that are known, by name."""

_LARGEST_COUNT = 1e18


def _gauge(name: str, unit: str, minimum: float, maximum: float) -> Metric:
    return _known(Metric(name, unit, MetricKind.GAUGE, minimum, maximum))


def _counter(name: str, unit: str, maximum: float = _LARGEST_COUNT) -> Metric:
    return _known(Metric(name, unit, MetricKind.COUNTER, 0, maximum))


def _known(metric: Metric) -> Metric:
    METRICS[metric.name] = metric
    return metric


GPU_UTIL = _gauge("DCGM_FI_DEV_GPU_UTIL", "%", 0, 100)
MEM_COPY_UTIL = _gauge("DCGM_FI_DEV_MEM_COPY_UTIL", "%", 0, 100)
ENC_UTIL = _gauge("DCGM_FI_DEV_ENC_UTIL", "%", 0, 100)
DEC_UTIL = _gauge("DCGM_FI_DEV_DEC_UTIL", "%", 0, 100)
SM_CLOCK = _gauge("DCGM_FI_DEV_SM_CLOCK", "MHz", 0, 10_000)
MEM_CLOCK = _gauge("DCGM_FI_DEV_MEM_CLOCK", "MHz", 0, 20_000)
GPU_TEMP = _gauge("DCGM_FI_DEV_GPU_TEMP", "C", -40, 150)
MEMORY_TEMP = _gauge("DCGM_FI_DEV_MEMORY_TEMP", "C", -40, 150)
POWER_USAGE = _gauge("DCGM_FI_DEV_POWER_USAGE", "W", 0, 5_000)
XID_ERRORS = _gauge("DCGM_FI_DEV_XID_ERRORS", "code", 0, 10_000)
FB_FREE = _gauge("DCGM_FI_DEV_FB_FREE", "MiB", 0, 4_194_304)
FB_USED = _gauge("DCGM_FI_DEV_FB_USED", "MiB", 0, 4_194_304)
FB_RESERVED = _gauge("DCGM_FI_DEV_FB_RESERVED", "MiB", 0, 4_194_304)
VGPU_LICENSE_STATUS = _gauge("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "code", 0, 100)
ROW_REMAP_FAILURE = _gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "code", 0, 100)
GR_ENGINE_ACTIVE = _gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "ratio", 0, 1)
PIPE_TENSOR_ACTIVE = _gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "ratio", 0, 1)
DRAM_ACTIVE = _gauge("DCGM_FI_PROF_DRAM_ACTIVE", "ratio", 0, 1)
PCIE_TX_BYTES = _gauge("DCGM_FI_PROF_PCIE_TX_BYTES", "B/s", 0, 1e13)
PCIE_RX_BYTES = _gauge("DCGM_FI_PROF_PCIE_RX_BYTES", "B/s", 0, 1e13)
TOTAL_ENERGY_CONSUMPTION = _counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "mJ")
PCIE_REPLAY_COUNTER = _counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "replays", 1e9)
NVLINK_BANDWIDTH_TOTAL = _counter("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "MB")
UNCORRECTABLE_REMAPPED_ROWS = _counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "rows", 1e9)
CORRECTABLE_REMAPPED_ROWS = _counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "rows", 1e9)
