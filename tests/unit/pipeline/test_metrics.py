import pytest

from millstream.pipeline.declaration import DCGM
from support.telemetry import SENTINELS


def test_the_metrics_of_a_dcgm_export_are_known_by_their_names() -> None:
    assert {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"} <= set(
        DCGM.metrics
    )


@pytest.mark.parametrize("metric", DCGM.metrics.values(), ids=list(DCGM.metrics))
def test_every_metric_can_be_zero(metric) -> None:
    assert metric.minimum <= 0 <= metric.maximum


@pytest.mark.parametrize("value", SENTINELS)
def test_what_dcgm_writes_for_no_value_is_no_value(value: int) -> None:
    assert any(low <= float(value) <= high for low, high in DCGM.sentinels)
