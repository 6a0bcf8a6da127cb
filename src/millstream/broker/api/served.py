"""An API as one node serves it: its row of the table, its codec, its handler and its metrics."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from millstream.broker.api.codecs import codec_of
from millstream.broker.api.table import ApiRow
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.observability.metrics import Counter, Histogram
from millstream.protocol.api import API_VERSIONS, NEVER_FLEXIBLE
from millstream.protocol.errors import ErrorCode
from millstream.protocol.limits import LIMITS

Collaborators = Callable[[str], tuple[object, ...]]
"""By an API's name: the arguments of its handler before the request and the call."""


class Served:
    __slots__ = (
        "_errors",
        "api",
        "clock",
        "count",
        "decode",
        "duration",
        "encode",
        "failure",
        "flexible_from",
        "handle",
        "handle_series",
        "is_cold",
        "is_large",
        "large_bytes",
        "largest_bytes",
        "needs",
        "row",
        "series",
        "slices",
    )

    def __init__(
        self, row: ApiRow, metrics: BrokerMetrics, clock: Callable[[], float], collaborators: Collaborators
    ) -> None:
        self.clock = clock
        self.row = row
        self.api = row.api
        # The reply to ApiVersions has the old header: its client does not know our versions yet.
        self.flexible_from = NEVER_FLEXIBLE if row.api.key == API_VERSIONS else row.api.flexible_from
        self.needs = row.needs
        self.slices = row.slices
        codec = codec_of(row.api)
        self.decode = codec.decode
        self.encode = codec.encode
        self.is_cold = codec.is_cold
        self.failure = codec.failure
        self.is_large = codec.is_large
        self.large_bytes = codec.large_bytes
        self.largest_bytes = LIMITS[row.api.name].size_bytes
        self.series = codec.series
        handler = make_handler(row, collaborators)
        self.handle: Callable[[Any, Any], Any] = getattr(handler, "handle", handler)
        self.handle_series: Callable[[Any, Any], int] | None = getattr(handler, "handle_series", None)
        self.count: Counter = metrics.requests.labels(row.api.name)
        self.duration: Histogram = metrics.request_duration.labels(row.api.name)
        self._errors = metrics.request_errors

    def count_error(self, code: ErrorCode) -> None:
        self._errors.labels(self.api.name, code.name).value += 1


def make_handler(row: ApiRow, collaborators: Collaborators) -> Any:
    """A handler is a function that takes its collaborators first, or a class whose constructor takes them."""
    module_name, _, name = row.handler.partition(":")
    handler = getattr(importlib.import_module(f"millstream.broker.{module_name}"), name)
    taken = collaborators(row.api.name)
    return handler(*taken) if isinstance(handler, type) else partial(handler, *taken)
