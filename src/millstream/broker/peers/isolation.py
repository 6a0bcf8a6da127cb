"""Whether others may have gone on without this node: then it serves clients nothing that another may lead by now."""

from collections.abc import Callable

from millstream.broker.partitions.registry import CutOff, Partitions


class Isolation:
    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self.on_cut_off: list[Callable[[], None]] = []
        """Called when the node is cut off, for whatever reason."""
        self.on_changed: list[Callable[[], None]] = []
        """Called when the node is cut off or is back."""

    def is_cut_off_by(self, why: CutOff) -> bool:
        return self._partitions.is_cut_off_by(why)

    def lease_until(self, has_lease: Callable[[], bool]) -> None:
        """`has_lease` says whether no other node can have acknowledged something that this one does not know."""
        self._partitions.has_lease = has_lease

    def cut_off(self, why: CutOff) -> None:
        """It does not lead any more for clients, and says so."""
        if self._partitions.is_cut_off_by(why):
            return
        self._partitions.cut_off(why)
        for told in (*self.on_cut_off, *self.on_changed):
            told()

    def rejoin(self, why: CutOff) -> None:
        """The metadata is the newest there is: what this node leads by it, it leads."""
        self._partitions.rejoin(why)
        for told in self.on_changed:
            told()
