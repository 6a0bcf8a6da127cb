"""A bound on open segment files: thousands of partitions share a few thousand handles."""

from collections import OrderedDict
from typing import Protocol

from millstream.runtime.disk import Disk, File


class Openable(Protocol):
    """The interface of segments to `OpenFiles`."""

    pins: int

    @property
    def log_path(self) -> str: ...

    def close(self) -> None: ...


class OpenFiles:
    """Closes the oldest unpinned handle when more than `limit` are open.

    A segment is pinned while it has unsynced bytes: the system reports a disk error only to handles that were open
    when it happened, so such a handle must stay open until its fsync has returned.
    """

    def __init__(self, disk: Disk, limit: int) -> None:
        self.disk = disk
        self._limit = limit
        self._open: OrderedDict[Openable, None] = OrderedDict()

    def open(self, segment: Openable, *, create: bool) -> File:
        return self.disk.open(segment.log_path, create=create)

    def opened(self, segment: Openable) -> None:
        self._open[segment] = None
        self.trim()

    def trim(self) -> None:
        """Enforce the limit again after a pin was released."""
        if len(self._open) > self._limit:
            self._evict()

    def closed(self, segment: Openable) -> None:
        self._open.pop(segment, None)

    def _evict(self) -> None:
        newest = next(reversed(self._open))
        for segment in list(self._open):
            if len(self._open) <= self._limit:
                return
            if segment.pins == 0 and segment is not newest:
                segment.close()

    def __len__(self) -> int:
        return len(self._open)
