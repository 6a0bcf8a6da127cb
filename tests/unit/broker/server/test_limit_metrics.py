from dataclasses import replace

import pytest

from millstream.broker.server.limit_metrics import share
from millstream.config.settings import PerformanceSettings

DEFAULT = PerformanceSettings()


@pytest.mark.parametrize("limit", [256, 1024, 4096, 65_536, 1 << 20])
def test_what_is_shared_out_leaves_something_for_the_rest(limit: int) -> None:
    shared = share(limit, DEFAULT)
    assert shared.connections + shared.log_files < limit


def test_connections_get_what_they_may_have_and_logs_the_rest() -> None:
    assert share(1 << 20, DEFAULT).connections == DEFAULT.max_connections
    assert share(65_536, DEFAULT).log_files > 20_000


def test_with_few_files_there_are_fewer_connections_instead_of_failing_logs() -> None:
    shared = share(1024, DEFAULT)
    assert shared.log_files == 64
    assert 500 < shared.connections < 1024 - 64


def test_a_chosen_number_of_log_files_is_kept() -> None:
    assert share(4096, replace(DEFAULT, max_open_files=1000)).log_files == 1000
