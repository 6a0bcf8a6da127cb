"""Runs many seeds on all processors.

Each seed has its own process, forked from one that has run a few seeds and so has imported and cached everything. A
process that exits skips the teardown, which would take a sixth of a run.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import cast

from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import SECONDS, Outcome, run_seed


def run_seeds(
    seeds: Sequence[int],
    *,
    seconds: float = SECONDS,
    processes: int = 1,
    routing: str | None = None,
    profile: Profile = Profile.SWARM,
) -> Iterator[Outcome]:
    """Yields outcomes as they arrive; several processes deliver them in any order."""
    work = partial(run_seed, seconds=seconds, routing=routing, profile=profile)
    if processes <= 1 or len(seeds) <= 1:
        yield from map(work, seeds)
        return
    work = partial(_run_apart, work)
    with pool_of(min(processes, len(seeds))) as pool:
        with _deaf_to_interrupts():
            futures = [pool.submit(work, seed) for seed in seeds]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


_runs_before = 0
"""Run the seed in this process."""
_ENOUGH_RUNS = 5


def _run_apart(work: Callable[..., Outcome], seed: int) -> Outcome:
    """Run the seed in a forked process, after this one has run a few."""
    global _runs_before  # noqa: PLW0603 - a process of the pool has nothing else to remember it by
    _runs_before += 1
    if _runs_before <= _ENOUGH_RUNS:
        return work(seed)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writer, "wb") as told:
            pickle.dump(work(seed, is_last=True), told)
        # Skip the teardown, and do not flush buffers shared with the parent twice.
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as heard:
        data = heard.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"the process of seed {seed} ended with status {status}")
    return cast("Outcome", pickle.loads(data))  # noqa: S301 - of our own child


def pool_of(processes: int) -> ProcessPoolExecutor:
    """The caller handles Ctrl-C: the worker processes finish the seeds they have begun, and print nothing."""
    return ProcessPoolExecutor(
        processes,
        # Not forked, because the caller may have threads.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started within ignore SIGINT from before their first import."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, known)


def replay_command(
    seed: int, *, seconds: float = SECONDS, routing: str | None = None, profile: Profile = Profile.SWARM
) -> str:
    """The command that repeats the run."""
    return " ".join(
        (
            f"millstream sim --seed {seed}",
            *([f"--seconds {seconds:g}"] if seconds != SECONDS else ()),
            *([f"--client-routing {routing}"] if routing is not None else ()),
            *([f"--profile {profile}"] if profile is not Profile.SWARM else ()),
        )
    )
