"""Reusable buffers for requests that do not fit into one read: fresh megabytes cost page faults each time."""

_SMALLEST = 1 << 12
_LARGEST_KEPT = 1 << 23
_KEPT_BYTES = 1 << 25


class FrameBuffers:
    """Free lists by power of two, with a bound on what is kept."""

    __slots__ = ("_free", "_kept")

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._kept = 0

    @staticmethod
    def room_for(size: int) -> int:
        """Size of the buffer that `take` returns: what it counts for, however much of it is used."""
        room = max(_SMALLEST, 1 << (size - 1).bit_length())
        return size if room > _LARGEST_KEPT else room

    def take(self, size: int) -> bytearray:
        room = self.room_for(size)
        free = self._free.get(room)
        if free:
            self._kept -= room
            return free.pop()
        return bytearray(room)

    def give_back(self, buffer: bytearray) -> None:
        room = len(buffer)
        if room <= _LARGEST_KEPT and room & (room - 1) == 0 and self._kept + room <= _KEPT_BYTES:
            self._free.setdefault(room, []).append(buffer)
            self._kept += room
