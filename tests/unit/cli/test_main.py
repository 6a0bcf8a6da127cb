import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from millstream import __version__
from millstream.cli.errors import CommandError, ExitCode, kafka_failure, run_guarded
from millstream.cli.main import main, requested_command

# Nothing listens on port 1 of a machine that runs tests, and a connection there is refused at once.
NOBODY = "127.0.0.1:1"


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
    return subprocess.run(
        [sys.executable, "-m", "millstream", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=environ | environment,
        check=False,
    )


def test_the_version_is_shown() -> None:
    result = run("--version")
    assert result.returncode == 0
    assert result.stdout.startswith(f"millstream {__version__} ")


def test_help_lists_every_command() -> None:
    result = run("--help")
    assert result.returncode == 0
    for command in ("serve", "topic", "group", "produce", "consume", "log", "config"):
        assert command in result.stdout


def test_a_shell_completes_commands_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MILLSTREAM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("COMP_WORDS", "millstream topic ")
    assert {"list", "create", "trim"} <= set(run().stdout.split())
    monkeypatch.setenv("COMP_WORDS", "millstream topic list --und")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert run().stdout.split() == ["--under-replicated"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_a_command_that_would_ask_goes_on_with_closed_streams(closed: str) -> None:
    command = f'exec "$0" -m millstream queue purge g t --bootstrap {NOBODY} {closed}'
    result = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable], stderr=subprocess.PIPE, text=True, check=False
    )
    assert result.returncode == ExitCode.UNREACHABLE, result.stderr
    assert "cannot reach the cluster" in result.stderr


def test_help_keeps_words_in_brackets() -> None:
    assert "millstream[pipeline]" in run("chaos", "--help").stdout
    assert "TOPIC[:0,1]" in run("topic", "trim", "--help").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["topic", "nonsense"],
        ["topic", "create"],
        ["serve", "--nonsense"],
        ["serve", "--listen", "nowhere"],
        ["consume", "t", "--from", "somewhere"],
        ["consume", "t", "--format", "%q"],
        ["consume", "t", "--format", "%s", "--json"],
        ["produce", "t", "--json-lines", "--key", "k", "-m", "x"],
        ["produce", "t", "--header", "novalue", "-m", "x"],
        ["produce", "t", "--key-separator", "", "-m", "x"],
        ["topic", "alter", "t"],
        ["topic", "create", "t", "--config", "novalue"],
        ["topic", "create", "t", "--partitions", "0"],
        ["topic", "list", "--bootstrap", ""],
        ["topic", "list", "--bootstrap", ","],
        ["topic", "list", "-X", "linger.ms=5"],
        ["topic", "list", "-X", "security.protocol"],
        ["topic", "list", "--profile", "nosuch"],
        ["topic", "list", "--bootstrap", "host:port"],
        ["group", "reset-offsets", "g", "--topic", "t"],
        ["log", "dump", __file__],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == ExitCode.USAGE
    error = capfd.readouterr().err
    assert error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "create", "t"],
        ["topic", "describe", "t"],
        ["topic", "alter", "t", "--partitions", "3"],
        ["topic", "delete", "t", "--yes"],
        ["produce", "t", "--message", "x"],
        ["consume", "t"],
        ["group", "list"],
        ["group", "describe", "g"],
        ["group", "reset-offsets", "g", "--topic", "t", "--to-latest"],
        ["group", "delete", "g", "--yes"],
    ],
    ids=" ".join,
)
def test_a_cluster_that_is_not_there_exits_with_3_and_names_the_address(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--bootstrap", NOBODY]) == ExitCode.UNREACHABLE
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert NOBODY in error
    assert "millstream serve" in error


def test_the_bootstrap_address_may_come_from_the_environment() -> None:
    result = run("topic", "list", MILLSTREAM_BOOTSTRAP=NOBODY)
    assert result.returncode == ExitCode.UNREACHABLE
    assert NOBODY in result.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [("millstream cl", "cluster"), ("millstream topic tr", "trim"), ("millstream topic x", "")],
)
def test_a_shell_completes_commands(line: str, expected: str) -> None:
    count = str(len(line.split()) - 1)
    completing = {"_MILLSTREAM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": count}
    assert run(**completing).stdout.strip() == expected


def test_debug_shows_the_traceback() -> None:
    result = run("--debug", "topic", "list", "--bootstrap", NOBODY)
    assert result.returncode == ExitCode.UNREACHABLE
    assert "Traceback" in result.stderr
    assert "Traceback" not in run("topic", "list", "--bootstrap", NOBODY).stderr


def test_config_show_lists_settings_with_default_and_meaning() -> None:
    rows = json.loads(run("config", "show", "--json").stdout)
    by_name = {row["name"]: row for row in rows}
    assert by_name["broker.port"]["default"] == "9092"
    assert by_name["broker.port"]["variable"] == "MILLSTREAM_BROKER_PORT"
    assert all(row["meaning"] for row in rows)


def test_config_check_shows_what_a_node_would_use(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("broker:\n  port: 1234\n")
    result = run("config", "check", str(file), "--json", MILLSTREAM_BROKER_ID="7", MILLSTREAM_BOOTSTRAP="x:1")
    assert result.returncode == 0, result.stderr
    settings = json.loads(result.stdout)["settings"]
    assert settings["broker.port"] == "1234"
    assert settings["broker.id"] == "7"


DECLARED = """
cluster:
  bootstrap_servers: [a:1, b:1, c:1]
broker:
  host: a
  port: 1
replication:
  default_replication_factor: 3
topics:
  large:
    partitions: 12
    retention_size: 500GB
  small:
    partitions: 2
    replication_factor: 1
    retention_size: 1MB
"""


def test_config_check_tells_the_disk_that_declared_topics_may_take(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(DECLARED)
    document = json.loads(run("config", "check", str(file), "--json").stdout)
    assert [topic["disk_bytes"] for topic in document["topics"]] == [36 * 500 << 30, 2 << 20]
    assert document["topics_disk_bytes"] == (36 * 500 << 30) + (2 << 20)
    shown = run("config", "check", str(file))
    assert "18000GB" in shown.stdout
    assert "may take" in shown.stderr


def test_config_check_says_that_nothing_limits_a_topic(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    compacted = "  kept:\n    retention_size: 1GB\n    cleanup_policy: compact\n  endless: {}\n"
    file.write_text(DECLARED + compacted)
    document = json.loads(run("config", "check", str(file), "--json").stdout)
    assert [topic["disk_bytes"] for topic in document["topics"]][2:] == [None, None]
    assert document["topics_disk_bytes"] is None
    shown = run("config", "check", str(file))
    assert "no limit" in shown.stdout
    assert "kept, endless" in shown.stderr


def test_config_check_of_a_wrong_file_exits_with_1_and_names_the_key(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("broker:\n  prot: 1234\n")
    result = run("config", "check", str(file))
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "prot" in result.stderr
    assert "port" in result.stderr
    assert result.stdout == ""


def test_config_check_of_a_missing_file_exits_with_1(tmp_path: Path) -> None:
    result = run("config", "check", str(tmp_path / "missing.yaml"))
    assert result.returncode == 1
    assert "missing.yaml" in result.stderr
    assert "Traceback" not in result.stderr


def test_serve_with_a_wrong_file_exits_with_1_before_it_starts(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("nonsense: 1\n")
    result = run("serve", "--config", str(file), "--data", str(tmp_path / "data"))
    assert result.returncode == 1
    assert "nonsense" in result.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["serve"], "serve"), (["--debug", "serve", "--data", "x"], "serve"), (["--help"], None), ([], None)],
)
def test_the_command_is_the_first_word(arguments: list[str], expected: str | None) -> None:
    assert requested_command(arguments) == expected


def raising(error: BaseException) -> object:
    raise error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (CommandError("no"), ExitCode.FAILURE),
        (CommandError("no", ExitCode.UNREACHABLE), ExitCode.UNREACHABLE),
        (PermissionError(13, "Permission denied", "file"), ExitCode.FAILURE),
        (RuntimeError("two\nlines"), ExitCode.FAILURE),
        (SystemExit(2), ExitCode.USAGE),
        (SystemExit(None), ExitCode.OK),
    ],
)
def test_every_way_to_end_has_its_exit_code(
    error: BaseException, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_guarded(lambda: raising(error)) == code
    assert capfd.readouterr().err.count("\n") <= 1


def test_who_reads_damaged_records_is_told_what_to_do() -> None:
    failure = kafka_failure("cannot read t", KafkaError(KafkaError.INVALID_MSG), "here:1")
    assert "damaged" in str(failure)
    assert "try again" in str(failure)


def test_a_reader_that_went_away_is_no_error() -> None:
    program = "import sys; from millstream.cli import errors, output\n"
    program += "def go():\n    while True:\n        output.write(b'x' * 65536)\n"
    program += "sys.exit(errors.run_guarded(go))"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(90) == 0
    assert process.stderr.read() == b""
    process.stderr.close()
