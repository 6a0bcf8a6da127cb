"""What a person at a terminal sees of the `millstream` command, and what is asked before something is lost."""

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.cli import Cli
from support.node import NodeProcess
from support.waiting import wait_for


@dataclass(frozen=True)
class Shown:
    returncode: int
    text: str


class Terminal:
    """Runs the command with a terminal in the place of all three streams."""

    def __init__(self, cli: Cli) -> None:
        self._environment = {**cli.environment, "TERM": "xterm", "COLUMNS": "100"}

    def run(self, *arguments: str, typed: bytes = b"") -> Shown:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "millstream", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=self._environment,
            start_new_session=True,
        )
        os.close(theirs)
        try:
            os.write(ours, typed)
            text = self.read(ours)
            return Shown(process.wait(90), text)
        finally:
            os.close(ours)

    @staticmethod
    def read(ours: int) -> str:
        shown = b""
        try:
            while piece := os.read(ours, 1 << 16):
                shown += piece
        except OSError:
            pass  # how Linux says that nobody holds the other end any more
        return shown.decode()


@pytest.fixture
def cli(broker: NodeProcess) -> Cli:
    return Cli(broker.bootstrap)


@pytest.fixture
def terminal(cli: Cli) -> Terminal:
    return Terminal(cli)


@pytest.fixture
def topic(cli: Cli, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    cli.ok("topic", "create", name, "--partitions", "2")
    return name


def test_results_are_tables_for_people(terminal: Terminal, cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "-p", "0", stdin=b"x\n" * 1234)
    described = terminal.run("topic", "describe", topic)
    assert described.returncode == 0
    assert "1,234" in described.text
    assert "───" in described.text
    assert "\t" not in described.text


def test_json_is_laid_out_for_people(terminal: Terminal, topic: str) -> None:
    described = terminal.run("topic", "describe", topic, "--json")
    assert described.text.splitlines()[:2] == ["{", f'  "topic": "{topic}",']


def test_long_work_shows_how_far_it_is(terminal: Terminal, topic: str) -> None:
    # Ctrl-D ends the input; at 5 messages a second three of them take long enough to be worth a line.
    sent = terminal.run("produce", topic, "--rate", "5", typed=b"a\nb\nc\n\x04")
    assert sent.returncode == 0
    assert "one message to a line; Ctrl-D ends" in sent.text
    assert "messages, " in sent.text
    assert "3 messages" in sent.text
    assert f"{topic}:" in sent.text
    assert " at offset 0" in sent.text


def test_reading_into_a_file_shows_how_far_it_is(cli: Cli, topic: str, tmp_path: Path) -> None:
    """Messages go on coming until the count is drawn: how many that takes is up to the machine."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    kept = tmp_path / "kept"
    with kept.open("wb") as file:
        reader = subprocess.Popen(
            [sys.executable, "-m", "millstream", "consume", topic, "--follow"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=theirs,
            env={**cli.environment, "TERM": "xterm"},
        )
    os.close(theirs)
    sent = shown = b""

    def send_one_more() -> bytes:
        nonlocal sent, shown
        cli.ok("produce", topic, "-p", "0", "-m", "one more")
        sent += b"one more\n"
        with contextlib.suppress(BlockingIOError):
            shown += os.read(ours, 1 << 16)
        return shown

    try:
        wait_for(send_one_more, lambda text: b" messages, " in text, "the count is drawn")
        wait_for(kept.read_bytes, lambda content: content == sent, "the file has what was read, and no more")
    finally:
        reader.terminate()
        reader.wait(90)
        os.close(ours)


@pytest.mark.parametrize(("answer", "is_deleted"), [(b"n\n", False), (b"y\n", True)])
def test_deleting_asks_first(
    terminal: Terminal, cli: Cli, topic: str, answer: bytes, is_deleted: bool
) -> None:
    asked = terminal.run("topic", "delete", topic, typed=answer)
    assert f"Delete {topic} at" in asked.text
    assert asked.returncode == (0 if is_deleted else 1)
    assert (topic not in {row["topic"] for row in cli.json("topic", "list")}) == is_deleted


def test_an_error_is_one_line_and_an_exit_code(terminal: Terminal, new_topic: Callable[[], str]) -> None:
    failed = terminal.run("topic", "describe", new_topic())
    assert failed.returncode == 1
    assert "error:" in failed.text
    assert len(failed.text.splitlines()) == 1
