"""Chance that is the same in every process: a generator for each thing that is left to it."""

import random
from hashlib import blake2b


def dice(*what: object) -> random.Random:
    """A generator that depends on `what` alone, such as `dice(seed, "job", hostname, slot)`."""
    return random.Random(_digest(what))  # noqa: S311 - a simulation keeps no secrets


def unique_bytes(*what: object) -> bytes:
    """Sixteen bytes that depend on `what` alone."""
    return _digest(what)


def _digest(what: tuple[object, ...]) -> bytes:
    return blake2b("/".join(map(str, what)).encode(), digest_size=16).digest()
