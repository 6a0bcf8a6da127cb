"""Random ids as Kafka shows them: 16 bytes in 22 characters of URL-safe base64."""

import base64
from collections.abc import Callable
from uuid import UUID


def id_text(value: UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def readable_ids(source: Callable[[], UUID]) -> Callable[[], UUID]:
    """The source without ids whose text starts with a dash, which command lines take for an option."""

    def draw() -> UUID:
        while id_text(value := source()).startswith("-"):
            pass
        return value

    return draw
