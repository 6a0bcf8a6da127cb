"""How several streamers share the GPUs: each GPU belongs to one of them, whatever the others do."""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Self


@dataclass(frozen=True, slots=True)
class Share:
    """The part of instance `number` (from 1) of `total`."""

    number: int = 1
    total: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.total:
            raise ValueError(f"instance {self.number} of {self.total} does not exist")

    @classmethod
    def parse(cls, text: str) -> Self:
        """`2/3` is the second of three."""
        number, slash, total = text.partition("/")
        if not (slash and number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
            raise ValueError(f"{text!r} is not of the form 1/3, the first of three instances")
        return cls(int(number), int(total))

    def holds(self, uuid: str) -> bool:
        return self.total == 1 or _number_of(uuid) % self.total == self.number - 1


@lru_cache(maxsize=1 << 17)
def _number_of(uuid: str) -> int:
    # Well mixed also for names that differ in a digit, which a checksum is not.
    return int.from_bytes(blake2b(uuid.encode(), digest_size=8).digest())


EVERYTHING = Share()
