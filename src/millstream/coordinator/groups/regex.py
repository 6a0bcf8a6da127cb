"""Subscriptions by regular expression: RE2's syntax, as in Kafka, matched in linear time.

Linear is not short: a few characters can take 150 ms to compile, and 10 ms for each name. So whoever has an expression
finds its topics in a thread, and a decision goes by what was found.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.internal_topics import INTERNAL_TOPICS

# The topics of an expression, or why it has none.
Found = frozenset[str] | KafkaError

# Expressions whose topics are remembered, those used last.
_MOST_REMEMBERED = 256
_remembered: dict[str, tuple[object, Found]] = {}


def find_topics(pattern: str, names: Iterable[str], is_late: Callable[[], bool] = lambda: False) -> Found:
    """The topics whose whole name matches. Internal ones never do: a consumer of `.*` would feed on its own commits.

    For a thread; it is given up as soon as it `is_late`.
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
    """For the very same `names`."""
    _remembered.pop(pattern, None)
    if len(_remembered) >= _MOST_REMEMBERED:
        del _remembered[next(iter(_remembered))]
    _remembered[pattern] = names, found


def known_topics(pattern: str, names: object) -> Found | None:
    """None where they have not been looked for among these names, or are no longer remembered."""
    known = _remembered.get(pattern)
    return known[1] if known is not None and known[0] is names else None


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
