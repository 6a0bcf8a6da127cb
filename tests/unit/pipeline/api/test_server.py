"""The API in a process of its own, started and stopped as an operator would."""

import http.client
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from pathlib import Path
from millstream.pipeline.api.server import serve_api
from millstream.pipeline.stores.open import open_store

store = open_store("parquet:" + sys.argv[1], data=Path(sys.argv[1]))
try:
    serve_api(store, "127.0.0.1", int(sys.argv[2]), on_ready=lambda host, port: print(port, flush=True))
finally:
    store.close()
print("stopped", flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, how: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        # A connection that is kept open does not hold it up.
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
        connection.request("GET", "/api/v1/gpus")
        assert connection.getresponse().status == 200
        process.send_signal(how)
        out, err = process.communicate(timeout=180)
        connection.close()
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out.strip(), err) == (0, "stopped", "")


def test_a_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path), str(port)],
            capture_output=True,
            check=False,
            text=True,
            timeout=300,
        )
    assert done.returncode == 1
    assert "Address already in use" in done.stderr
