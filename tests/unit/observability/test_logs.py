import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from millstream.observability import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    logs._output.__init__()


Written = Callable[[], str]


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Written:
    """What was written to standard error."""
    return lambda: capsys.readouterr().err


def test_a_line_elsewhere_than_on_a_terminal_is_one_json_object(written: Written) -> None:
    logs.configure("info", "auto")
    logs.get_logger("storage").bind(topic="t").info("segment rolled", offset=5)
    text = written()
    line = json.loads(text)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "segment rolled",
        "level": "info",
        "logger": "storage",
        "topic": "t",
        "offset": 5,
    }
    assert text.count("\n") == 1


def test_a_line_on_a_terminal_is_coloured_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    logs.configure("info", "auto")
    logs.get_logger("storage").info("segment rolled", offset=5)
    assert "\x1b[" in terminal.getvalue()
    assert "segment rolled" in terminal.getvalue()


def test_text_can_be_asked_for_and_has_no_colours_then(written: Written) -> None:
    logs.configure("info", "text")
    logs.get_logger("storage").info("segment rolled", offset=5, topic="two words")
    text = written()
    assert "\x1b" not in text
    assert "segment rolled [storage] offset=5 topic='two words'" in text


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_lines_below_the_level_are_not_written(level: str, expected: list[str], written: Written) -> None:
    logs.configure(level, "json")
    log = logs.get_logger("x")
    log.debug("line")
    log.info("line")
    log.warning("line")
    log.error("line")
    assert [json.loads(line)["level"] for line in written().splitlines()] == expected
    assert log.debug_enabled == (level == "debug")


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_an_exception_brings_its_traceback(fmt: str, written: Written) -> None:
    logs.configure("info", fmt)
    try:
        raise ValueError("the reason")
    except ValueError:
        logs.get_logger("x").exception("failed")
    text = written()
    assert "Traceback" in text
    assert "the reason" in text


@pytest.mark.parametrize("value", [2**80, "\udcff", b"\x00", RuntimeError, {1: 2}, {"a"}], ids=ascii)
def test_no_value_loses_a_json_line(value: object, written: Written) -> None:
    logs.configure("info", "json")
    logs.get_logger("x").info("odd", value=value)
    assert json.loads(written())["event"] == "odd"


def test_escape_sequences_of_clients_do_not_reach_a_terminal(written: Written) -> None:
    logs.configure("info", "text")
    logs.get_logger("x").info("joined", client_id="\x1b[2Jevil\nline")
    text = written()
    assert "\x1b" not in text
    assert text.count("\n") == 1


def test_a_log_that_cannot_be_written_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (Broken(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        logs.configure("info", "json")
        logs.get_logger("x").info("line")


def test_warnings_of_libraries_become_our_lines(written: Written) -> None:
    logs.configure("info", "json")
    logging.getLogger("asyncio").error("task %s failed", 7)
    logging.getLogger("asyncio").info("chatter")
    (line,) = [json.loads(line) for line in written().splitlines()]
    assert (line["logger"], line["level"], line["event"]) == ("asyncio", "error", "task 7 failed")


def test_rich_is_not_imported_for_a_log_line_and_stays_importable() -> None:
    program = """
import sys
from millstream.observability import logs
logs.configure("info", "json")
assert "structlog" not in sys.modules
logs.get_logger("x").info("line")
assert "structlog" in sys.modules
assert "rich" not in sys.modules
import rich.console
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
