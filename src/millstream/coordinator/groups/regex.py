"""Subscriptions by regular expression: RE2's syntax, as in Kafka, matched in linear time."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.internal_topics import INTERNAL_TOPICS


def check_regex(pattern: str) -> None:
    _compiled(pattern)


# Expressions whose topics are remembered, those used last.
_MOST_REMEMBERED = 256
_remembered: dict[str, tuple[object, frozenset[str]]] = {}


def matching_topics(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The topics whose whole name matches. Internal ones never do: a consumer of `.*` would feed on its own commits.

    What was found is remembered for the very same `names`: with many topics it takes long, and who must not wait has it
    found in a thread before.
    """
    known = _remembered.get(pattern)
    if known is None or known[0] is not names:
        return remember(pattern, names, find_topics(pattern, names))
    return known[1]


def find_topics(pattern: str, names: Iterable[str]) -> frozenset[str]:
    full_match = _compiled(pattern).fullmatch
    return frozenset(name for name in names if name not in INTERNAL_TOPICS and full_match(name) is not None)


def remember(pattern: str, names: Iterable[str], found: frozenset[str]) -> frozenset[str]:
    _remembered.pop(pattern, None)
    if len(_remembered) >= _MOST_REMEMBERED:
        del _remembered[next(iter(_remembered))]
    _remembered[pattern] = names, found
    return found


def is_matched(pattern: str, names: object) -> bool:
    """Whether the expression's topics are remembered."""
    known = _remembered.get(pattern)
    return known is not None and known[0] is names


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    # Python's own `re` backtracks, so one client could stop the node with `(a+)+b`. Imported on first use.
    import re2

    options = re2.Options()
    options.log_errors = False
    # Of the compiled expression and of what matching it builds up; eight times as much is usual.
    options.max_mem = 1 << 20
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no expression in RE2 syntax: {text}"
        ) from None
