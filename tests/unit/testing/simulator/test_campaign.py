"""Seeds that run in processes of their own are the same runs."""

from functools import partial

from millstream.testing.simulator.campaign import _ENOUGH_RUNS, _run_apart, pool_of
from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed


def test_a_seed_is_the_same_run_in_a_process_that_was_forked_for_it() -> None:
    work = partial(run_seed, seconds=10.0, profile=Profile.PLAIN)
    with pool_of(1) as pool:
        outcomes = list(pool.map(partial(_run_apart, work), [1] * (_ENOUGH_RUNS + 1)))
    assert not outcomes[-1].problems
    assert all(each == outcomes[0] for each in outcomes)
