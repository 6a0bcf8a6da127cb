"""Many seeds, on all processors."""

import multiprocessing
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial

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
    with pool_of(min(processes, len(seeds))) as pool:
        with _deaf_to_interrupts():
            futures = [pool.submit(work, seed) for seed in seeds]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


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
    seed: int,
    *,
    seconds: float = SECONDS,
    routing: str | None = None,
    profile: Profile = Profile.SWARM,
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
