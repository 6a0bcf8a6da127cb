"""Subscriptions by regular expression: RE2's syntax, as in Kafka, matched in linear time."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.internal_topics import INTERNAL_TOPICS


def check_regex(pattern: str) -> None:
    _compiled(pattern)


def matching_topics(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The topics whose whole name matches. Internal ones never do: a consumer of `.*` would feed on its own commits."""
    full_match = _compiled(pattern).fullmatch
    return frozenset(name for name in names if name not in INTERNAL_TOPICS and full_match(name) is not None)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    # Python's own `re` backtracks, so one client could stop the node with `(a+)+b`. Imported on first use.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no expression in RE2 syntax: {text}"
        ) from None
