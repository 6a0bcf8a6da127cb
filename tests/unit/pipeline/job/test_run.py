"""One line out of pages of stack traces."""

from millstream.pipeline.job.run import in_one_line

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
