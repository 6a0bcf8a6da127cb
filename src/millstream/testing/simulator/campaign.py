"""Many seeds, on all processors."""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

from millstream.testing.simulator.run import SECONDS, Outcome, run_seed


def run_seeds(
    seeds: Sequence[int], *, seconds: float = SECONDS, processes: int = 1, routing: str = "direct"
) -> Iterator[Outcome]:
    """Outcomes as they come; those of several processes in any order."""
    work = partial(run_seed, seconds=seconds, routing=routing)
    if processes <= 1 or len(seeds) <= 1:
        yield from map(work, seeds)
        return
    # Not forked: the caller may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(seeds)), mp_context=context) as pool:
        futures = [pool.submit(work, seed) for seed in seeds]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
