"""One line out of pages of stack traces, and whose offsets a checkpoint has."""

from datetime import timedelta
from pathlib import Path

from millstream.pipeline.job.ledger import Ledger, Summary
from millstream.pipeline.job.run import in_one_line, is_another_topic

FROM_A_SOURCE = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when the source performs latestOffset:
Traceback (most recent call last):
  File "source_runner.py", line 171, in main
    latest_offset_func(reader, outfile)
millstream.spark.options.Unreachable: no broker answered at 127.0.0.1:9092 within 30 s; is it running?
 SQLSTATE: 38000"""


def test_the_cause_of_a_failed_source() -> None:
    line = in_one_line(RuntimeError(FROM_A_SOURCE))
    assert line == "no broker answered at 127.0.0.1:9092 within 30 s; is it running?"


def test_a_plain_error_is_told_as_it_is() -> None:
    assert in_one_line(ValueError("the disk is full")) == "the disk is full"


def test_an_error_without_words() -> None:
    assert in_one_line(TimeoutError()) == "TimeoutError"


def test_a_checkpoint_of_another_topic_is_put_aside(tmp_path: Path) -> None:
    ledger, checkpoint = Ledger(tmp_path / "ledger.json", timedelta(minutes=10)), tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    assert not is_another_topic(ledger, checkpoint, None), "the cluster does not say"
    assert not is_another_topic(ledger, checkpoint, "a"), "the first that is known"
    ledger.record(7, Summary({"valid": 3}))
    assert not is_another_topic(ledger, checkpoint, "a")
    assert not is_another_topic(ledger, checkpoint, None)
    assert checkpoint.exists()

    assert is_another_topic(ledger, checkpoint, "b")
    assert not checkpoint.exists()
    again = Ledger(tmp_path / "ledger.json", timedelta(minutes=10))
    assert (again.topic_id, again.batch_id, again.totals["valid"]) == ("b", -1, 3)
    # And back: what was put aside before is no obstacle.
    for topic in ("a", "b"):
        checkpoint.mkdir()
        assert is_another_topic(again, checkpoint, topic)
    assert not checkpoint.exists()
