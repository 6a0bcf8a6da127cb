"""The quorum's pace in a simulation: the same times, counted in fewer and longer ticks."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from millstream.cluster.raft import driver, replica
from millstream.cluster.raft.settings import RaftSettings

TICK_MS = 150
"""An election after 1.2 to 2.4 seconds of silence. A tick wakes a node up and mostly finds nothing to do."""

_SETTINGS = partial(RaftSettings, heartbeat_ticks=2, election_ticks=8, snapshot_retry_ticks=60)
_RETRY_TICKS = 10


@contextmanager
def coarse_ticks() -> Iterator[None]:
    """For every quorum that is started meanwhile."""
    places = ((driver, "RaftSettings", _SETTINGS), (replica, "_RETRY_TICKS", _RETRY_TICKS))
    originals = [getattr(module, name) for module, name, _ in places]
    for module, name, coarse in places:
        setattr(module, name, coarse)
    try:
        yield
    finally:
        for (module, name, _), original in zip(places, originals, strict=True):
            setattr(module, name, original)
