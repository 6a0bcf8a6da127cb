import pytest

from millstream.cli.telemetry_view import TelemetryView, describe
from millstream.pipeline.streamer import Progress

FINE = Progress(
    acknowledged=12_000, unanswered=0, gpus=32, time_ms=1_772_366_400_500, behind_s=0.0, silent_s=0.0
)


def test_a_stream_that_is_fine_is_told_in_short() -> None:
    assert describe(FINE, 1_000) == "12,000 points acknowledged, 1,000/s, 32 GPUs, at 2026-03-01T12:00:00Z"


def test_what_is_not_as_it_should_be_is_told_too() -> None:
    late = Progress(12_000, 500, 32, 1_772_366_400_000, behind_s=7.2, silent_s=4.0)
    text = describe(late, 0)
    assert "7 s behind" in text
    assert "500 waiting for an acknowledgement since 4 s" in text


def test_in_a_pipe_notes_are_plain_lines_and_progress_is_rare(capsys: pytest.CaptureFixture[str]) -> None:
    with TelemetryView() as view:
        view.note("something")
        for _ in range(100):
            view.progress(FINE)
    assert capsys.readouterr().err == "something\n"
