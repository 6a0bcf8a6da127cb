"""Short runs of `millstream chaos`: everything it does, for a few seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.testing.chaos.wires import NoNamespaces, Wires


@pytest.fixture
def networks() -> None:
    """Skips the test where no network namespaces can be made, which not even root may do in every container."""
    wires = Wires((1,))
    try:
        wires.open()
    except NoNamespaces as reason:
        pytest.skip(str(reason))
    wires.close()


def chaos(tmp_path: Path, *arguments: str, timeout_s: float = 400) -> str:
    report = tmp_path / "chaos.html"
    done = subprocess.run(
        [
            sys.executable, "-m", "millstream", "chaos", "--rate", "30", "--data", str(tmp_path / "data"),
            "--report", str(report), *arguments,
        ],
        capture_output=True, check=False, text=True, timeout=timeout_s,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "anomalies\t0\n" in done.stdout
    page = report.read_text()
    assert "Timeline" in page
    return page


@pytest.mark.usefixtures("networks")
def test_a_short_chaos_run_finds_nothing(tmp_path: Path) -> None:
    page = chaos(tmp_path, "--seconds", "6", "--seed", "2", "--faults", "kill,one-way-cut,delay,loss")
    for fault in ("kill -9", "one-way cut", "delay 100 ms", "loss 10%"):
        assert f"<td>{fault}</td>" in page


@pytest.mark.long
def test_a_short_chaos_run_without_networks_finds_nothing(tmp_path: Path) -> None:
    chaos(tmp_path, "--seconds", "10", "--seed", "1", "--faults", "kill,pause,restart", "--no-network")


@pytest.mark.long
def test_a_long_chaos_run_with_everything_finds_nothing(tmp_path: Path) -> None:
    chaos(tmp_path, "--seconds", "150", "--seed", "3", timeout_s=800)


def test_faults_are_named_and_others_refused() -> None:
    command = [sys.executable, "-m", "millstream", "chaos", "--faults"]
    named = subprocess.run([*command, "list"], capture_output=True, check=True, text=True)
    assert "failing-fsync\n" in named.stdout
    refused = subprocess.run([*command, "kill,earthquake"], capture_output=True, check=False, text=True)
    assert refused.returncode == 2
    assert "no fault 'earthquake'" in refused.stderr
    for impossible in (
        ["cut", "--no-network"],
        ["kill", "--nodes", "2", "--replicas", "3"],
        ["kill", "--report", "/nonexistent/chaos.html"],
    ):
        nothing = subprocess.run([*command, *impossible], capture_output=True, check=False, text=True)
        assert nothing.returncode == 2, "said at once, not after the run"
