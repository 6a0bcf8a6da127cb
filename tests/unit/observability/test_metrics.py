import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from millstream.observability.broker_metrics import BrokerMetrics, PartitionSample
from millstream.observability.exposition import render
from millstream.observability.metrics import Histogram, Registry


def scrape(registry: Registry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample, as a Prometheus server reads it."""
    text = render(registry.snapshot()).decode()
    families = text_string_to_metric_families(text)
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(registry: Registry, name: str, **labels: str) -> float:
    return scrape(registry)[name, frozenset(labels.items())]


def test_counters_and_gauges_are_scraped_with_their_values() -> None:
    registry = Registry()
    counter = registry.counter("a_total", "A.")
    gauge = registry.gauge("b", "B.")
    counter.value += 3
    gauge.value = -1.5
    assert (value(registry, "a_total"), value(registry, "b")) == (3, -1.5)


def test_children_are_kept_by_their_labels_until_removed() -> None:
    registry = Registry()
    family = registry.counters("a_total", "A.", "topic", "kind")
    child = family.labels('odd "name"\n', "x")
    child.value += 2
    assert family.labels('odd "name"\n', "x") is child
    assert value(registry, "a_total", topic='odd "name"\n', kind="x") == 2
    family.remove('odd "name"\n', "x")
    family.remove("never", "there")
    assert not [name for name, _ in scrape(registry) if name == "a_total"]


def test_a_child_needs_a_value_for_each_label() -> None:
    with pytest.raises(ValueError, match="topic"):
        Registry().counters("a_total", "A.", "topic").labels()


def test_a_name_is_given_once() -> None:
    registry = Registry()
    registry.gauge("a", "A.")
    with pytest.raises(ValueError, match="exists already"):
        registry.counter("a", "A.")


def test_a_computed_gauge_is_computed_at_each_scrape() -> None:
    registry = Registry()
    values = iter([1, 2])
    registry.computed_gauge("a", "A.", lambda: next(values))
    assert [value(registry, "a"), value(registry, "a")] == [1, 2]


def test_a_histogram_counts_up_to_and_including_each_bound() -> None:
    registry = Registry()
    histogram = registry.histogram("a", "A.", bounds=(1, 2))
    for observed in (0.5, 1, 1.5, 2, 99):
        histogram.observe(observed)
    buckets = [value(registry, "a_bucket", le=bound) for bound in ("1.0", "2.0", "+Inf")]
    assert buckets == [2, 4, 5]
    assert (value(registry, "a_count"), value(registry, "a_sum")) == (5, 104)


@given(st.lists(st.floats(min_value=0, max_value=10)))
def test_every_observation_is_in_exactly_one_bucket(observed: list[float]) -> None:
    histogram = Histogram()
    for each in observed:
        histogram.observe(each)
    for bound, counted in zip(histogram.bounds, _cumulative(histogram.counts), strict=False):
        assert counted == sum(each <= bound for each in observed)
    assert sum(histogram.counts) == len(observed)


def _cumulative(counts: list[int]) -> list[int]:
    return [sum(counts[: index + 1]) for index in range(len(counts))]


class State:
    def partition_samples(self) -> list[PartitionSample]:
        return [
            PartitionSample("t", 0, True, 100, 7, 3, 10, 9),
            PartitionSample("t", 1, False, 0, 0, 0, 0, 0),
        ]

    def purgatory_sizes(self) -> dict[str, int]:
        return {"fetch": 4}

    def disk_free_bytes(self) -> int:
        return 12345


def test_a_broker_tells_its_counts_its_state_and_its_process() -> None:
    metrics = BrokerMetrics.create()
    metrics.watch(State())
    metrics.requests.labels("Produce").value += 1
    metrics.request_errors.labels("Produce", "CORRUPT_MESSAGE").value += 1
    metrics.request_duration.labels("Produce").observe(0.002)
    metrics.messages_in.count("t", 5)
    samples = {
        (name, tuple(sorted(labels))): value for (name, labels), value in scrape(metrics.registry).items()
    }
    assert samples["millstream_requests_total", (("api", "Produce"),)] == 1
    assert samples["millstream_request_duration_seconds_count", (("api", "Produce"),)] == 1
    assert samples["millstream_messages_in_total", (("topic", "t"),)] == 5
    assert samples["millstream_partitions", ()] == 2
    assert samples["millstream_offline_partitions", ()] == 1
    assert samples["millstream_log_end_offset", (("partition", "0"), ("topic", "t"))] == 10
    assert samples["millstream_high_watermark", (("partition", "0"), ("topic", "t"))] == 9
    assert samples["millstream_purgatory_size", (("kind", "fetch"),)] == 4
    assert samples["millstream_disk_free_bytes", ()] == 12345
    assert samples["process_resident_memory_bytes", ()] > 0
    assert samples["process_open_fds", ()] > 0
    assert any(name == "millstream_build_info" for name, _ in samples)


def test_a_deleted_topic_leaves_no_series() -> None:
    metrics = BrokerMetrics.create()
    metrics.messages_in.count("t", 5)
    metrics.messages_in.forget("t")
    assert not [name for name, _ in scrape(metrics.registry) if name.startswith("millstream_messages_in")]
