"""Query strings. Unknown names are ignored, as existing clients expect."""

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import parse_qsl

from millstream.http.messages import Problem, Request

_MAX_FIELDS = 32
_CACHED_BYTES = 256
_LARGEST = 2**31 - 1


def query_of(request: Request) -> Mapping[str, str]:
    query = request.query
    return _cached(query) if len(query) <= _CACHED_BYTES else _parse(query)


def _parse(query: bytes) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(query.decode("ascii"), True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise Problem(400, "the query string cannot be read: it must be percent-encoded UTF-8") from None
    return dict(pairs)


_cached = lru_cache(maxsize=4_096)(_parse)


def whole_number(
    query: Mapping[str, str], name: str, default: int, *, least: int = 0, most: int = _LARGEST
) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or not least <= int(text) <= most:
        raise Problem(400, f"{name} must be a whole number from {least} to {most}")
    return int(text)


def partition_in(query: Mapping[str, str], text: str = "invalid partition") -> int | None:
    given = query.get("partition", "")
    if not given:
        return None
    if not (given.isascii() and given.isdigit()) or len(given) > 10 or int(given) > _LARGEST:
        raise Problem(400, text)
    return int(given)
