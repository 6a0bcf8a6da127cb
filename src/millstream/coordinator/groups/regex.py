"""Subscriptions by regular expression: RE2's syntax, as in Kafka, matched in linear time.

Even so a few characters can take 150 ms to compile, and 10 ms for each name. So topics are matched in a thread first,
and decisions use the result.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.internal_topics import INTERNAL_TOPICS

# The matching topics, or the error.
Found = frozenset[str] | KafkaError

# How many expressions are cached, the last used ones.
_MOST_REMEMBERED = 256
_remembered: dict[str, tuple[object, Found]] = {}


def find_topics(pattern: str, names: Iterable[str], is_late: Callable[[], bool] = lambda: False) -> Found:
    """The topics whose whole name matches. Internal ones never do: a consumer of `.*` would read its own commits.

    Runs in a thread; stops as soon as `is_late` returns True.
    """
    found = []
    try:
        full_match = _compiled(pattern).fullmatch
    except KafkaError as error:
        return error.as_value()
    for name in names:
        if is_late():
            return KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} takes too long to match all topics"
            )
        if name not in INTERNAL_TOPICS and full_match(name) is not None:
            found.append(name)
    return frozenset(found)


def remember(pattern: str, names: object, found: Found) -> None:
    """Cache the result for this very `names` object."""
    _remembered.pop(pattern, None)
    if len(_remembered) >= _MOST_REMEMBERED:
        del _remembered[next(iter(_remembered))]
    _remembered[pattern] = names, found


def known_topics(pattern: str, names: object) -> Found | None:
    """The cached result; None if there is none for these names."""
    known = _remembered.get(pattern)
    return known[1] if known is not None and known[0] is names else None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    # Python's own `re` backtracks, so one client could stop the node with `(a+)+b`. Imported on first use.
    import re2

    options = re2.Options()
    options.log_errors = False
    # Bounds the compiled expression and its matching state; eight times as much is usual.
    options.max_mem = 1 << 20
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no expression in RE2 syntax: {text}"
        ) from None
