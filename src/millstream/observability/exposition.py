"""Metrics in Prometheus' text format, written by prometheus-client from our own snapshots.

Importing it loads prometheus-client, about 100 ms: only when metrics are first asked for, and off the loop.
"""

from collections.abc import Iterable
from itertools import accumulate, chain

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from millstream.observability.metrics import Distribution, FamilySnapshot, Kind

CONTENT_TYPE = CONTENT_TYPE_LATEST

# CPU, memory, open files and start time of this process, read from the system at each scrape.
_process = ProcessCollector(registry=None)


class _Snapshot(Collector):
    def __init__(self, snapshot: Iterable[Iterable[FamilySnapshot]]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        return chain(map(_metric, chain.from_iterable(self._snapshot)), _process.collect())


def render(snapshot: Iterable[Iterable[FamilySnapshot]]) -> bytes:
    """The page /metrics answers with: these families and the process' own."""
    return generate_latest(_Snapshot(snapshot))


def _metric(family: FamilySnapshot) -> Metric:
    if family.kind is Kind.HISTOGRAM:
        return _histogram(family)
    make = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric = make(family.name, family.documentation, labels=family.label_names)
    for labels, value in family.samples:
        if not isinstance(value, Distribution):
            metric.add_metric(labels, value)
    return metric


def _histogram(family: FamilySnapshot) -> Metric:
    metric = HistogramMetricFamily(family.name, family.documentation, labels=family.label_names)
    for labels, value in family.samples:
        if isinstance(value, Distribution):
            bounds = [*(str(float(bound)) for bound in value.bounds), "+Inf"]
            buckets = list(zip(bounds, accumulate(value.counts), strict=True))
            metric.add_metric(labels, buckets=buckets, sum_value=value.sum)
    return metric
