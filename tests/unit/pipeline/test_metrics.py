import math

import pytest

from millstream.pipeline.metrics import GPU_UTIL, METRICS, TOTAL_ENERGY_CONSUMPTION, ValueVerdict, judge
from support.telemetry import SENTINELS


def test_the_metrics_of_a_dcgm_export_are_known_by_their_names() -> None:
    assert {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"} <= set(
        METRICS
    )
    assert all(name == metric.name for name, metric in METRICS.items())


@pytest.mark.parametrize("metric", METRICS.values(), ids=str)
def test_every_metric_can_be_zero(metric) -> None:
    assert judge(metric, 0) is ValueVerdict.PLAUSIBLE


@pytest.mark.parametrize("value", SENTINELS)
def test_what_dcgm_writes_for_no_value_is_no_value(value: int) -> None:
    assert judge(GPU_UTIL, float(value)) is ValueVerdict.SENTINEL


def test_a_counter_may_pass_the_blank_of_another_type() -> None:
    assert judge(TOTAL_ENERGY_CONSUMPTION, 2147483632.0) is ValueVerdict.PLAUSIBLE
    assert judge(TOTAL_ENERGY_CONSUMPTION, 9223372036854775794.0) is ValueVerdict.SENTINEL


@pytest.mark.parametrize("value", [100.5, -1.0, math.inf, -math.inf, math.nan])
def test_what_cannot_be_measured_is_a_mistake(value: float) -> None:
    assert judge(GPU_UTIL, value) is ValueVerdict.OUT_OF_RANGE
