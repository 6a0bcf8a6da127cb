"""`millstream telemetry stream` against a running node, as a user runs it: a process of its own each time."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.testing import EmbeddedBroker
from support.cli import Cli
from support.node import NodeProcess
from support.telemetry import csv_of_a_fleet, real_dcgm_csv
from support.waiting import wait_for

ROWS = 2 * 2 * 2 * 10


@pytest.fixture
def cli(broker: NodeProcess) -> Cli:
    return Cli(broker.bootstrap)


@pytest.fixture
def csv(tmp_path: Path) -> str:
    path = tmp_path / "dcgm.csv"
    path.write_text(csv_of_a_fleet(hosts=2, gpus=2, scrapes=2))
    return str(path)


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts streams that run until they are interrupted, or the test ends."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(cli: Cli, *arguments: str) -> "subprocess.Popen[bytes]":
        started.append(cli.start("telemetry", "stream", *arguments))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def said(process: "subprocess.Popen[bytes]", text: str) -> None:
    """Wait until the stream has said so on standard error."""
    assert process.stderr is not None
    lines: list[str] = []
    while text not in (line := process.stderr.readline().decode()):
        lines.append(line)
        assert line, f"it ended without {text!r}: {lines}"


def stream(cli: Cli, topic: str, *arguments: str) -> dict[str, Any]:
    return cli.json("telemetry", "stream", *arguments, "--topic", topic)


def stored(cli: Cli, topic: str) -> list[dict[str, Any]]:
    """What `consume` prints of each message, with its value as a document."""
    messages = cli.json_lines("consume", topic)
    return [{**message, "value": json.loads(message["value"])} for message in messages]


def identities(messages: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    values = [message["value"] for message in messages]
    return {(value["uuid"], value["metric_name"], value["timestamp"]) for value in values}


def interrupt(process: "subprocess.Popen[bytes]", number: int = signal.SIGINT) -> tuple[int, str, str]:
    process.send_signal(number)
    out, error = process.communicate(timeout=180)
    return process.returncode, out.decode(), error.decode()


def test_a_file_is_sent_once_keyed_by_gpu(cli: Cli, new_topic: Callable[[], str], csv: str) -> None:
    topic = new_topic()
    summary = stream(cli, topic, csv, "--loops", "1", "--partitions", "3")
    assert (summary["acknowledged"], summary["unanswered"], summary["gpus"]) == (ROWS, 0, 4)
    messages = stored(cli, topic)
    assert len(messages) == len(identities(messages)) == ROWS
    assert all(message["key"] == message["value"]["uuid"] for message in messages)
    assert len(cli.json("topic", "describe", topic)["partitions"]) == 3


def test_a_loop_makes_new_points_until_the_count_is_reached(
    cli: Cli, new_topic: Callable[[], str], csv: str
) -> None:
    topic = new_topic()
    assert stream(cli, topic, csv, "--count", "1234")["acknowledged"] == 1234
    messages = stored(cli, topic)
    assert len(messages) == len(identities(messages)) == 1234


def test_the_real_export_gives_every_point(cli: Cli, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    summary = stream(cli, topic, str(real_dcgm_csv()), "--loops", "1")
    assert (summary["acknowledged"], summary["gpus"], summary["rows_left_out"]) == (2470, 247, 0)
    assert len(identities(stored(cli, topic))) == 2470


def test_instances_share_a_fleets_past(cli: Cli, new_topic: Callable[[], str]) -> None:
    shared, whole = new_topic(), new_topic()
    past = (
        "--hosts",
        "2",
        "--since",
        "2026-03-01T00:00:00Z",
        "--until",
        "2026-03-01T00:10:00Z",
        "--interval",
        "1m",
    )
    parts = [stream(cli, shared, *past, "--instance", f"{number}/3") for number in (1, 2, 3)]
    assert sum(part["gpus"] for part in parts) == 16
    stream(cli, whole, *past)

    def values(topic: str) -> Counter[str]:
        return Counter(json.dumps(message["value"]) for message in stored(cli, topic))

    assert values(shared) == values(whole)
    assert values(whole).total() == 16 * 10 * 15


def test_a_live_fleet_ends_after_the_duration(cli: Cli, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    summary = stream(cli, topic, "--hosts", "1", "--rate", "600", "--duration", "1s", "--form", "nested")
    assert summary["acknowledged"] > 0
    messages = stored(cli, topic)
    assert len(messages) == summary["acknowledged"]
    assert all(message["value"]["gpu_id"] == message["key"] for message in messages)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_says_how_many_points_are_stored(
    cli: Cli, start: Start, new_topic: Callable[[], str], csv: str, number: int
) -> None:
    topic = new_topic()
    process = start(cli, csv, "--topic", topic, "--rate", "500", "--json")
    wait_for(lambda: cli.run("consume", topic, "--count", "1").stdout, bool, "the first point")
    exit_code, out, error = interrupt(process, number)
    assert exit_code == 0, error
    assert json.loads(out)["acknowledged"] == len(stored(cli, topic))


def test_rows_that_cannot_be_used_are_named_and_counted(
    cli: Cli, new_topic: Callable[[], str], csv: str
) -> None:
    text = Path(csv).read_text().splitlines()
    text[3] = text[3].replace('"nvidia', '"nvidia"",')
    text[5] = "broken"
    Path(csv).write_text("\n".join(text))
    result = cli.run("telemetry", "stream", csv, "--loops", "1", "--topic", new_topic(), "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["rows_left_out"] == 1
    assert f"{csv}:6: 1 columns where the header has 12" in result.stderr.decode()


def test_a_file_with_missing_columns_is_refused_before_anything_is_sent(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("time,uuid,value\n1,2,3\n")
    error = cli.fails("telemetry", "stream", str(path), "--topic", "never-made")
    assert "no column timestamp, metric_name, gpu_id, device, modelName, Hostname" in error
    assert "never-made" not in {row["topic"] for row in cli.json("topic", "list")}


def test_a_file_that_is_not_there_is_refused(cli: Cli) -> None:
    assert "nowhere.csv: No such file" in cli.fails("telemetry", "stream", "nowhere.csv")


def test_it_waits_for_a_broker_that_is_down_and_loses_nothing(tmp_path: Path, start: Start, csv: str) -> None:
    with EmbeddedBroker(directory=tmp_path / "broker") as broker:
        cli = Cli(broker.bootstrap_servers)
        broker.stop()
        process = start(cli, csv, "--rate", "2000", "--topic", "t", "--json")
        said(process, "waiting: no answer from")
        broker.start()
        said(process, "answers")
        wait_for(lambda: cli.run("consume", "t", "--count", "1").stdout, bool, "the first point")
        broker.kill()
        said(process, "no acknowledgement for")
        broker.start()
        said(process, "the cluster answers again")
        exit_code, out, error = interrupt(process)
        assert exit_code == 0, error
        messages = stored(cli, "t")
        assert len(messages) == len(identities(messages)) == json.loads(out)["acknowledged"]


def test_interrupted_twice_while_the_broker_is_down_it_ends(tmp_path: Path, start: Start, csv: str) -> None:
    with EmbeddedBroker(directory=tmp_path / "broker") as broker:
        cli = Cli(broker.bootstrap_servers)
        process = start(cli, csv, "--rate", "2000", "--topic", "t")
        wait_for(lambda: cli.run("consume", "t", "--count", "1").stdout, bool, "the first point")
        broker.kill()
        said(process, "no acknowledgement for")
        process.send_signal(signal.SIGINT)
        said(process, "another Ctrl-C ends it")
        exit_code, _, error = interrupt(process)
        assert exit_code == 130, error
        assert "Traceback" not in error
        broker.start()


def test_on_a_terminal_a_live_line_shows_how_far_it_is(cli: Cli, new_topic: Callable[[], str]) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "millstream", "telemetry", "stream", "--topic", new_topic()]
    environment = {**cli.environment, "TERM": "xterm-256color", "COLUMNS": "200"}
    process = subprocess.Popen(
        [*command, "--hosts", "1", "--rate", "300", "--count", "600"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    shown = b""
    # A terminal without anybody at the other end is an error rather than the end of a file.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert process.wait(90) == 0
    assert b"points acknowledged, " in shown
    assert b"8 GPUs" in shown
    assert b"600 points of 8 GPUs acknowledged by" in shown


def test_points_that_the_topic_refuses_are_counted_and_named(
    cli: Cli, new_topic: Callable[[], str], csv: str
) -> None:
    topic = new_topic()
    cli.ok("topic", "create", topic, "--config", "max.message.bytes=100")
    result = cli.run("telemetry", "stream", csv, "--loops", "1", "--topic", topic, "--json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["acknowledged"] == 0
    assert json.loads(result.stdout)["unanswered"] == ROWS
    error = result.stderr.decode()
    assert f"{ROWS} points were not acknowledged" in error
    assert "MSG_SIZE_TOO_LARGE" in error


def test_a_topic_that_is_deleted_meanwhile_is_created_again(
    cli: Cli, start: Start, new_topic: Callable[[], str], csv: str
) -> None:
    topic = new_topic()
    process = start(cli, csv, "--topic", topic, "--rate", "1000", "--partitions", "2", "--json")
    wait_for(lambda: cli.run("consume", topic, "--count", "1").stdout, bool, "the first point")
    cli.ok("topic", "delete", topic, "--yes")
    wait_for(lambda: cli.run("consume", topic, "--count", "1").stdout, bool, "a point in the new topic")
    exit_code, out, error = interrupt(process)
    assert exit_code == 0, error
    assert 0 < len(stored(cli, topic)) < json.loads(out)["acknowledged"]
