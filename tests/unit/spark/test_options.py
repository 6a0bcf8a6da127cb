import pytest

pytest.importorskip("numpy", reason="the `spark` extra is not installed")

from millstream.spark.errors import OptionError
from millstream.spark.options import Assigned, Pattern, ReadOptions, Topics, read_options
from millstream.spark.positions import AtOffsets, AtTime, AtTimes, Earliest, Latest

BASE = {"kafka.bootstrap.servers": "a:9092,PLAINTEXT://b:9093", "subscribe": "t"}


def batch(**options: str) -> ReadOptions:
    return read_options({**BASE, **options}, streaming=False)


def stream(**options: str) -> ReadOptions:
    return read_options({**BASE, **options}, streaming=True)


def test_defaults_are_sparks() -> None:
    assert (batch().start, batch().end) == (Earliest(), Latest())
    assert stream().start == Latest()
    options = stream()
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.max_trigger_delay_s == 15 * 60
    assert options.cluster.bootstrap == (("a", 9092), ("b", 9093))


def test_subscriptions() -> None:
    assert batch(subscribe="b, a ,b").subscription == Topics(("a", "b"))
    given = {"kafka.bootstrap.servers": "a:1"}
    pattern = read_options({**given, "subscribePattern": "gpu-.*"}, streaming=True).subscription
    assert isinstance(pattern, Pattern)
    assert pattern.matches("gpu-1")
    assert not pattern.matches("a-gpu-1")
    assigned = read_options({**given, "assign": '{"a":[1,0],"b":[2]}'}, streaming=True).subscription
    assert assigned == Assigned((("a", 0), ("a", 1), ("b", 2)))


def test_positions_by_offset_and_by_time() -> None:
    assert stream(startingOffsets='{"t":{"0":23,"1":-2}}').start == AtOffsets({("t", 0): 23, ("t", 1): -2})
    assert batch(endingOffsets='{"t":{"0":50,"1":-1}}').end == AtOffsets({("t", 0): 50, ("t", 1): -1})
    assert stream(startingOffsetsByTimestamp='{"t":{"0":1000}}').start == AtTimes(
        {("t", 0): 1000}, or_latest=False
    )
    assert batch(endingTimestamp="2000").end == AtTime(2000, or_latest=True)
    later = stream(startingTimestamp="1", startingOffsetsByTimestampStrategy="latest").start
    assert later == AtTime(1, or_latest=True)


def test_a_time_for_all_wins_over_times_by_partition_and_these_over_offsets() -> None:
    offsets, times = '{"t":{"0":1}}', '{"t":{"0":1000}}'
    assert isinstance(stream(startingOffsets=offsets, startingOffsetsByTimestamp=times).start, AtTimes)
    chosen = stream(startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp="7").start
    assert chosen == AtTime(7, or_latest=False)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("15m", 900), ("500ms", 0.5), ("2000", 2), ("1h", 3600)]
)
def test_the_longest_delay_is_a_time_of_spark(text: str, seconds: float) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_s == seconds


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": " , "}, "names no topic"),
        ({"assign": '{"t":[0]}'}, "exactly one of"),
        ({"startingOffsets": "latest"}, "can't be latest for batch"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be -1"),
        ({"endingOffsets": "earliest"}, "can't be earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets for t-0 can't be -2"),
        ({"startingOffsets": "soon"}, "expected earliest, latest or"),
        ({"startingOffsets": '{"t":{"zero":1}}'}, "expected earliest, latest or"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "-2 is the least"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-5}}'}, "not negative"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "choose error or latest"),
        ({"failOnDataLoss": "maybe"}, "must be true or false"),
        ({"minPartitions": "0"}, "above 0"),
        ({"maxOffsetsPerTrigger": "5"}, "not for batch queries"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"kafka.auto.offset.reset": "earliest"}, "use the option startingOffsets"),
        ({"kafka.value.deserializer": "X"}, "read as bytes"),
        ({"kafka.isolation.level": "strict"}, "choose one of read_uncommitted, read_committed"),
        ({"kafka.fetch.min.bytes": "many"}, "whole number"),
        ({"kafka.bootstrap.servers": "nowhere:port"}, "not of the form HOST:PORT"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_a_wrong_option_of_a_batch_query_is_named(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        batch(**options)


def test_a_stream_has_no_end_and_its_limits_must_agree() -> None:
    with pytest.raises(OptionError, match="endingOffsets is not for streaming"):
        stream(endingOffsets="latest")
    with pytest.raises(OptionError, match="larger than maxOffsetsPerTrigger"):
        stream(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="5")


def test_names_are_read_in_any_case_and_what_means_nothing_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = read_options(
        {
            "KAFKA.Bootstrap.Servers": "a:1",
            "SUBSCRIBE": "t",
            "kafka.max.poll.records": "5",
            "groupIdPrefix": "g",
        },
        streaming=True,
    )
    assert options.subscription == Topics(("t",))
    assert "kafka.max.poll.records" in caplog.text
    assert "groupIdPrefix" in caplog.text


def test_properties_of_the_cluster() -> None:
    cluster = stream(
        **{
            "kafka.isolation.level": "read_committed",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.check.crcs": "false",
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "5000",
        }
    ).cluster
    assert cluster.read_committed
    assert cluster.isolation_level == 1
    assert (cluster.fetch_bytes, cluster.check_crcs, cluster.client_id) == (1000, False, "me")
    assert cluster.request_timeout_s == 5
