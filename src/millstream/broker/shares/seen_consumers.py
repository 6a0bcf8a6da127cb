"""Which consumers a queue has seen lately."""

# Consumers seen within this time share the messages; how often the others are removed.
_ACTIVE_MS = 5_000
_LOOK_MS = 500


class SeenConsumers:
    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._looked_ms = 0

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def last_ms(self) -> int:
        return max(self._seen.values(), default=0)

    def see(self, member: str, now_ms: int) -> None:
        self._seen[member] = now_ms
        if now_ms - self._looked_ms >= _LOOK_MS:
            self._looked_ms = now_ms
            self._seen = {name: seen for name, seen in self._seen.items() if now_ms - seen <= _ACTIVE_MS}

    def see_again(self, member: str, now_ms: int) -> None:
        """Those that only settle are forgotten after a while: anybody may settle what was settled before."""
        if member in self._seen:
            self._seen[member] = now_ms

    def forget(self, member: str) -> None:
        self._seen.pop(member, None)
