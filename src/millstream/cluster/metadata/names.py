"""Topic names: which are allowed, which are the cluster's own, which would collide in metrics."""

import base64
import re
from collections.abc import Callable
from uuid import UUID

from millstream.cluster.metadata.image import MetadataImage, metric_name
from millstream.protocol.internal_topics import INTERNAL_TOPICS

MAX_LENGTH = 249

# The directory of the quorum's log; a topic of that name would be indistinguishable from it.
RESERVED_NAMES = frozenset({"__cluster_metadata"})

_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_name_reason(name: str) -> str | None:
    """Why the name cannot be a topic's, or None when it can."""
    if not name:
        return "the topic name is empty; give it at least one character"
    if name in (".", ".."):
        return f"the topic name '{name}' is not allowed; '.' and '..' are directories"
    if len(name) > MAX_LENGTH:
        return f"the topic name is {len(name)} characters long; at most {MAX_LENGTH} are allowed"
    if not _ALLOWED.fullmatch(name):
        return f"the topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def is_protected(name: str) -> bool:
    """Whether the topic is created and deleted by the cluster itself, never on a client's request."""
    return name in INTERNAL_TOPICS or name in RESERVED_NAMES


def colliding_topic(image: MetadataImage, name: str) -> str | None:
    """An existing topic that differs from `name` only in '.' against '_'."""
    existing = image.names_by_metric_name.get(metric_name(name))
    return existing if existing != name else None


def id_text(value: UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def readable_ids(source: Callable[[], UUID]) -> Callable[[], UUID]:
    """Skips ids whose text starts with a dash, which command lines would take for an option."""

    def draw() -> UUID:
        while id_text(value := source()).startswith("-"):
            pass
        return value

    return draw
