"""The metrics of a GPU that the pipeline knows: dcgm-exporter's default counters."""

from enum import StrEnum

import msgspec


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value outside `minimum` to `maximum` (inclusive) cannot be a measurement of it."""

    minimum: float
    maximum: float
    unit: str = ""
    kind: MetricKind = MetricKind.GAUGE


SENTINEL_RANGES = (
    (2147483632.0, 2147483647.0),
    (140737488355328.0, 140737488355343.0),
    (9223372036854774784.0, 9223372036854775807.0),
)
"""DCGM's blanks for int32, double and int64 ("blank", "not found", "not supported", "not permitted"), inclusive.

As doubles all int64 blanks are 2^63, so its range starts at the double below. A value in these ranges that is
plausible for its metric (an energy counter can pass 2^31 mJ) is a measurement.
"""

GPU_UTIL, MEM_COPY_UTIL = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL"
ENC_UTIL, DEC_UTIL = "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL"
SM_CLOCK, MEM_CLOCK = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK"
GPU_TEMP, MEMORY_TEMP = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP"
POWER_USAGE, XID_ERRORS = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS"
FB_USED, FB_FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
TOTAL_ENERGY_CONSUMPTION = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
PCIE_REPLAY_COUNTER, NVLINK_BANDWIDTH_TOTAL = (
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
)

_PERCENT, _CELSIUS, _MIB = Metric(0, 100, "%"), Metric(-40, 150, "C"), Metric(0, 4_194_304, "MiB")
_RATIO, _SMALL_CODE = Metric(0, 1, "ratio"), Metric(0, 100, "code")

METRICS = {
    **dict.fromkeys((GPU_UTIL, MEM_COPY_UTIL, ENC_UTIL, DEC_UTIL), _PERCENT),
    **dict.fromkeys((GPU_TEMP, MEMORY_TEMP), _CELSIUS),
    **dict.fromkeys((FB_USED, FB_FREE, "DCGM_FI_DEV_FB_RESERVED"), _MIB),
    SM_CLOCK: Metric(0, 10_000, "MHz"),
    MEM_CLOCK: Metric(0, 20_000, "MHz"),
    POWER_USAGE: Metric(0, 5_000, "W"),
    XID_ERRORS: Metric(0, 10_000, "code"),
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": _SMALL_CODE,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": _SMALL_CODE,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _RATIO,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _RATIO,
    "DCGM_FI_PROF_DRAM_ACTIVE": _RATIO,
    "DCGM_FI_PROF_PCIE_TX_BYTES": Metric(0, 1e13, "B/s"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": Metric(0, 1e13, "B/s"),
    TOTAL_ENERGY_CONSUMPTION: Metric(0, 1e18, "mJ", MetricKind.COUNTER),
    PCIE_REPLAY_COUNTER: Metric(0, 1e9, "replays", MetricKind.COUNTER),
    NVLINK_BANDWIDTH_TOTAL: Metric(0, 1e18, "MB", MetricKind.COUNTER),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": Metric(0, 1e9, "rows", MetricKind.COUNTER),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": Metric(0, 1e9, "rows", MetricKind.COUNTER),
}
