import signal
from collections.abc import Iterator, Sequence

import pytest

from millstream.cli.main import main
from millstream.runtime.sometimes import MARKS
from millstream.testing.simulator import campaign
from millstream.testing.simulator.run import Outcome


def test_seeds_that_find_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seeds", "2", "--seconds", "10", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "seeds\t2\n" in out
    assert "failed\t0\n" in out


def test_one_seed_shows_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "3", "--seconds", "10", "--log-level", "info"]) == 0
    out = capsys.readouterr().out
    assert "cluster founded" in out
    assert "trace\t" in out


def test_a_seed_that_finds_something_is_named_with_the_way_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_seeds(seeds: Sequence[int], **_: object) -> Iterator[Outcome]:
        for seed in seeds:
            yield Outcome(seed, problems=["two leaders"] if seed in (5, 6) else [])

    monkeypatch.setattr(campaign, "run_seeds", run_seeds)
    assert main(["sim", "--first", "4", "--seeds", "4", "--seconds", "20"]) == 1
    streams = capsys.readouterr()
    assert "seed 5: two leaders" in streams.out
    assert "2 of 4 seeds found something" in streams.err
    assert "first seed\t4\n" in streams.out
    assert "`millstream sim --seed 5 --seconds 20`" in streams.err


@pytest.fixture
def quiet_seeds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], float]]:
    """Seeds that find nothing and meet one marked situation; what was asked for."""
    asked: list[tuple[list[int], float]] = []

    def run_seeds(seeds: Sequence[int], *, seconds: float, **_: object) -> Iterator[Outcome]:
        asked.append((list(seeds), seconds))
        for seed in seeds:
            yield Outcome(seed, marks={MARKS[0]: 2})

    monkeypatch.setattr(campaign, "run_seeds", run_seeds)
    return asked


def test_some_seeds_are_longer_and_begin_where_the_others_end(
    quiet_seeds: list[tuple[list[int], float]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "--first", "7", "--seeds", "2", "--long-seeds", "1"]) == 0
    assert quiet_seeds == [([7, 8], 60.0), ([9], 180.0)]
    out = capsys.readouterr().out
    assert f"       6  {MARKS[0]}\n" in out
    assert f"   never  {MARKS[1]}\n" in out


@pytest.mark.usefixtures("quiet_seeds")
def test_situations_that_never_occurred_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seeds", "1", "--every-mark"]) == 1
    err = capsys.readouterr().err
    assert MARKS[1] in err
    assert MARKS[0] not in err


def test_a_fresh_campaign_begins_at_another_seed_each_time(
    quiet_seeds: list[tuple[list[int], float]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "--fresh", "--seeds", "1", "--json"]) == 0
    assert main(["sim", "--fresh", "--seeds", "1"]) == 0
    first, _, second, _ = quiet_seeds
    assert first[0][0] != second[0][0] >= 10**6
    assert f'"first seed":{first[0][0]},' in capsys.readouterr().out


def test_an_interrupt_is_not_told_by_every_process() -> None:
    with campaign.pool_of(1) as pool:
        assert pool.submit(signal.getsignal, signal.SIGINT).result(60) is signal.SIG_IGN
