import signal
from collections.abc import Iterator, Sequence

import pytest

from millstream.cli.main import main
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
    assert "`millstream sim --seed 5 --seconds 20`" in streams.err


def test_an_interrupt_is_not_told_by_every_process() -> None:
    with campaign.pool_of(1) as pool:
        assert pool.submit(signal.getsignal, signal.SIGINT).result(60) is signal.SIG_IGN
