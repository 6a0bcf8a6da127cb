"""The definition of a metric, and the names of metrics that the code itself uses; `dcgm.yaml` has all known ones."""

from enum import StrEnum

import msgspec


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value outside `minimum` to `maximum` (inclusive) cannot be a measurement of this metric."""

    minimum: float
    maximum: float
    unit: str = ""
    kind: MetricKind = MetricKind.GAUGE


GPU_UTIL, MEM_COPY_UTIL = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL"
ENC_UTIL, DEC_UTIL = "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL"
SM_CLOCK, MEM_CLOCK = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK"
GPU_TEMP, MEMORY_TEMP = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP"
POWER_USAGE, XID_ERRORS = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS"
FB_USED, FB_FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
TOTAL_ENERGY_CONSUMPTION = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
PCIE_REPLAY_COUNTER = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
NVLINK_BANDWIDTH_TOTAL = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
