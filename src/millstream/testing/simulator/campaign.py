"""Many seeds, on all processors.

Each has a process of its own, forked from one that has run a few and so has imported and cached everything: a process
that just ends takes nothing apart, which is a sixth of a run.
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
    """Outcomes as they come; those of several processes in any order."""
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
"""In this process."""
_ENOUGH_RUNS = 5


def _run_apart(work: Callable[..., Outcome], seed: int) -> Outcome:
    """In a process that is forked for it, once this one has run a few."""
    global _runs_before  # noqa: PLW0603 - a process of the pool has nothing else to remember it by
    _runs_before += 1
    if _runs_before <= _ENOUGH_RUNS:
        return work(seed)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writer, "wb") as told:
            pickle.dump(work(seed, is_last=True), told)
        # Nothing of this process is taken apart, and nothing that it shares with its parent is flushed twice.
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as heard:
        data = heard.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"the process of seed {seed} ended with status {status}")
    return cast("Outcome", pickle.loads(data))  # noqa: S301 - of our own child


def pool_of(processes: int) -> ProcessPoolExecutor:
    """Ctrl-C is the caller's: the processes end the seeds that they have begun, and say nothing of it."""
    return ProcessPoolExecutor(
        processes,
        # Not forked: the caller may have threads.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """For processes that are started meanwhile: they are deaf before they have imported anything."""
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
    """What shows that run again."""
    return " ".join(
        (
            f"millstream sim --seed {seed}",
            *([f"--seconds {seconds:g}"] if seconds != SECONDS else ()),
            *([f"--client-routing {routing}"] if routing is not None else ()),
            *([f"--profile {profile}"] if profile is not Profile.SWARM else ()),
        )
    )
