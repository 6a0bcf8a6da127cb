"""`make demo`, as far as it is a program: all parts start, points arrive in the store, and it ends cleanly."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support.waiting import wait_for

PAGE_PORT = 8090
ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "examples.demo"]

pytestmark = pytest.mark.xdist_group("demo")


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    """Where the demo puts its data; whatever it does, it leaves no file and no process behind."""
    yield tmp_path
    assert list(tmp_path.glob("millstream-demo-*")) == []
    assert processes_with(str(tmp_path)) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_points_come_through_the_whole_pipeline(temporary: Path) -> None:
    with usual_port_taken():
        done = subprocess.run(
            DEMO, cwd=ROOT, env=environment(temporary, DEMO_SECONDS="1"), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=1700, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    address = re.search(r"Query API +http://127\.0\.0\.1:(\d+)/docs", done.stdout)
    assert address is not None
    assert int(address[1]) != PAGE_PORT
    stored = re.findall(r"stored ([\d,]+)", done.stdout)
    assert int(stored[-1].replace(",", "")) > 0
    sent = re.search(r"([\d,]+) points were written and acknowledged", done.stdout)
    assert sent is not None
    assert int(sent[1].replace(",", "")) > 0


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_an_interrupt_during_the_start_ends_everything(temporary: Path) -> None:
    output = temporary / "output"
    with output.open("wb") as file:
        demo = subprocess.Popen(
            DEMO, cwd=ROOT, env=environment(temporary), stdin=subprocess.DEVNULL,
            stdout=file, stderr=file,
        )  # fmt: skip
    try:
        wait_for(
            lambda: logged(temporary, "pipeline.log"), lambda text: "starting Spark" in text, "Spark", 400
        )
        demo.send_signal(signal.SIGINT)
        code = demo.wait(600)
    finally:
        demo.kill()
        demo.wait()

    assert code == 0, output.read_text()


def test_data_is_kept_where_it_was_asked_for(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kept = tmp_path_factory.mktemp("kept") / "demo"
    with subprocess.Popen(
        DEMO, cwd=ROOT, env=environment(temporary, DEMO_DATA=str(kept)), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as demo:  # fmt: skip
        wait_for((kept / "demo.yaml").exists, bool, "the settings", 300)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(300) == 0

    assert "bootstrap: 127.0.0.1:" in (kept / "demo.yaml").read_text()
    assert (kept / "node").is_dir()
    assert processes_with(str(kept)) == []


def test_a_wrong_number_of_seconds_is_named(temporary: Path) -> None:
    done = subprocess.run(
        DEMO, cwd=ROOT, env=environment(temporary, DEMO_SECONDS="soon"), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr == "error: DEMO_SECONDS='soon' is not a number of seconds\n"


@contextmanager
def usual_port_taken() -> Iterator[None]:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Somebody else may have it already.
        with suppress(OSError):
            other.bind(("127.0.0.1", PAGE_PORT))
            other.listen()
        yield


def environment(temporary: Path, **settings: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DEMO_")}
    return {**inherited, **settings, "TMPDIR": str(temporary)}


def logged(temporary: Path, name: str) -> str:
    return "".join(log.read_text() for log in temporary.glob(f"millstream-demo-*/{name}"))


def processes_with(words: str) -> list[str]:
    """Command lines of running processes that contain the words."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if words in command:
            found.append(command)
    return found
