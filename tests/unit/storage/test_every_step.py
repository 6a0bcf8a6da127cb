"""A story of a log is ended, or its disk fails, at every single step of the disk; afterwards the log is as it must be.

What was acknowledged is there, nothing appears that was never written, and the log can be opened and used.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product

import pytest

from millstream.testing.disk import Crashed, SimulatedDisk, Survival
from support.log_stories import BROKEN, FULL_FOR_LONG, FULL_ONCE, STORIES, StepFault, Teller

LOSSES = (None, Survival.NOTHING, Survival.EVERYTHING, Survival.SECTORS)
"""What a loss of power leaves of what was not synced; None stands for a kill, which leaves all."""
FAULTS = (None, FULL_ONCE, FULL_FOR_LONG, BROKEN)
WAYS = tuple(product(FAULTS, LOSSES, (False, True)))
"""Fault of the disk (None: the process ends there), loss, whether other nodes keep the log too."""
LONGEST_START = 34
"""Steps of the disk."""


def steps_of(name: str) -> int:
    story, config = STORIES[name]
    teller = Teller(config, 0, is_replicated=True)
    before = teller.disk.operations
    story(teller)
    assert not teller.ended
    return teller.disk.operations - before


@contextmanager
def trouble(disk: SimulatedDisk, step: int, fault: tuple[int, int] | None) -> Iterator[None]:
    """The program ends at that step of the disk, or meets the fault from there on."""
    if fault is None:
        disk.crash_after(step)
    else:
        disk.faults.add(StepFault(step, *fault))
    with suppress(Crashed):
        yield
    disk.faults.clear()


def tell(
    name: str,
    step: int,
    fault: tuple[int, int] | None,
    loss: Survival | None,
    *,
    is_replicated: bool,
    seed: int,
    of_recovery: tuple[int, tuple[int, int] | None] | None = None,
) -> None:
    """`of_recovery`: the step at which the first start after that ends or fails, and the fault."""
    story, config = STORIES[name]
    teller = Teller(config, seed, is_replicated=is_replicated)
    disk = teller.disk
    with trouble(disk, step, fault):
        story(teller)
    if of_recovery is not None:
        disk.restart()
        with trouble(disk, *of_recovery):
            teller.start()
            teller.write(2)
            teller.checkpoint()
    disk.restart(power_loss=loss is not None, survival=loss)
    teller.start()
    teller.check()
    teller.go_on()


@pytest.mark.parametrize("name", STORIES)
def test_a_log_outlives_an_end_or_a_fault_at_any_step(name: str) -> None:
    """Each step in one way, so that all ways come in turn."""
    for step in range(steps_of(name)):
        fault, loss, is_replicated = WAYS[step * 7 % len(WAYS)]
        tell(name, step, fault, loss, is_replicated=is_replicated, seed=step)


@pytest.mark.parametrize("name", STORIES)
def test_so_it_does_when_the_start_after_that_ends_or_fails_too(name: str) -> None:
    for step in range(0, steps_of(name), 3):
        fault, loss, is_replicated = WAYS[step * 5 % len(WAYS)]
        of_recovery = step * 5 % LONGEST_START, FAULTS[step % len(FAULTS)]
        tell(name, step, fault, loss, is_replicated=is_replicated, seed=step, of_recovery=of_recovery)


# All ways at all steps, which takes minutes.
@pytest.mark.long
@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("way", WAYS)
def test_a_log_outlives_every_end_and_fault_at_every_step(
    name: str, way: tuple[tuple[int, int] | None, Survival | None, bool]
) -> None:
    fault, loss, is_replicated = way
    for step in range(steps_of(name)):
        tell(name, step, fault, loss, is_replicated=is_replicated, seed=step)
        for number, of_start in enumerate(FAULTS):
            at = (step * 5 + number * 11) % LONGEST_START
            tell(name, step, fault, loss, is_replicated=is_replicated, seed=step, of_recovery=(at, of_start))
