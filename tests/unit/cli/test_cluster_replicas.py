import pytest
import typer

from millstream.cli.cluster_replicas import fail_where_not_elected
from millstream.cli.errors import ExitCode


def test_leaders_that_were_not_elected_end_the_command_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as ended:
        fail_where_not_elected([("orders", 3, "not elected: PREFERRED_LEADER_NOT_AVAILABLE")])
    assert ended.value.exit_code == ExitCode.FAILURE
    told = capsys.readouterr().err
    assert told.startswith("orders:3: not elected: PREFERRED_LEADER_NOT_AVAILABLE\n")
    assert "`millstream cluster status`" in told


def test_where_all_were_elected_the_command_goes_on() -> None:
    fail_where_not_elected([])
