import asyncio
import errno
import http.client
import io
import json
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import uvloop

from millstream.http.messages import Request, Response
from millstream.http.node_routes import Health, HealthStatus, node_routes
from millstream.http.server import HttpServer
from millstream.observability.metrics import Registry

Answer = tuple[int, dict[str, str], bytes]


def ask(address: tuple[str, int], method: str, path: str, body: bytes | None = None) -> Answer:
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


def serving(server: HttpServer, talk: Callable[[tuple[str, int]], Any]) -> Any:
    """Start the server, talk to it from another thread, stop it."""

    async def main() -> Any:
        address = await server.start()
        try:
            return await asyncio.to_thread(talk, address)
        finally:
            await server.stop()

    return uvloop.run(main())


def health(status: HealthStatus = HealthStatus.OK) -> Health:
    return Health(status, 3, "1.2.3", 61.23456, 12, 1, ("tired",), {"disk_free_bytes": 5})


def node(status: HealthStatus = HealthStatus.OK) -> HttpServer:
    registry = Registry()
    registry.counter("millstream_test_total", "A test.").value += 4
    return HttpServer("127.0.0.1", 0, node_routes(registry, lambda: health(status)))


@pytest.mark.parametrize(
    ("status", "code"), [(HealthStatus.OK, 200), (HealthStatus.DEGRADED, 503), (HealthStatus.STARTING, 503)]
)
def test_health_tells_the_node_and_its_status(status: HealthStatus, code: int) -> None:
    answered, headers, body = serving(node(status), lambda at: ask(at, "GET", "/health?full=1"))
    assert (answered, headers["content-type"]) == (code, "application/json")
    assert json.loads(body) == {
        "status": status.value,
        "node_id": 3,
        "version": "1.2.3",
        "uptime_seconds": 61.235,
        "partitions": 12,
        "offline_partitions": 1,
        "reasons": ["tired"],
        "disk_free_bytes": 5,
    }


@pytest.mark.parametrize(("why", "code"), [((), 200), (("the node is cut off",), 503)])
def test_a_node_that_is_not_well_is_ready_as_long_as_clients_may_come(
    why: tuple[str, ...], code: int
) -> None:
    poorly = msgspec.structs.replace(health(HealthStatus.DEGRADED), stay_away=why)
    server = HttpServer("127.0.0.1", 0, node_routes(Registry(), lambda: poorly))
    answered, _, body = serving(server, lambda at: ask(at, "GET", "/ready"))
    assert (answered, json.loads(body)) == (code, {"ready": not why, "reasons": list(why)})


def test_metrics_are_in_prometheus_text_format() -> None:
    status, headers, body = serving(node(), lambda at: ask(at, "GET", "/metrics"))
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=")
    assert b"millstream_test_total 4.0\n" in body


def test_head_answers_like_get_without_a_body() -> None:
    status, headers, body = serving(node(), lambda at: ask(at, "HEAD", "/health"))
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


def test_an_unknown_path_is_not_found_and_told_what_there_is() -> None:
    status, headers, body = serving(node(), lambda at: ask(at, "GET", "/nothing"))
    assert (status, headers["content-type"]) == (404, "application/json")
    assert json.loads(body)["error"] == "there is nothing at /nothing; try /health, /metrics, /ready"


def test_a_wrong_method_is_told_the_right_ones() -> None:
    status, headers, body = serving(node(), lambda at: ask(at, "POST", "/health", b"x" * 100_000))
    assert (status, headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert "use GET, HEAD, OPTIONS" in json.loads(body)["error"]


def test_a_handler_that_fails_is_answered_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)

    async def fail(_request: Request) -> Response:
        raise RuntimeError("secret reason")

    status, _, body = serving(HttpServer("127.0.0.1", 0, {"GET /": fail}), lambda at: ask(at, "GET", "/"))
    assert status == 500
    assert b"secret" not in body
    assert "secret reason" in log.getvalue()


def test_signals_stay_with_the_node() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    async def main() -> Any:
        server = node()
        await server.start()
        during = signal.getsignal(signal.SIGTERM)
        await server.stop()
        return during

    # asyncio.run, unlike the node, handles SIGINT itself, so only SIGTERM is compared while it runs.
    assert asyncio.run(main()) is before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_an_address_in_use_is_told_with_advice() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = f"cannot listen for HTTP on 127.0.0.1:{port}: Address already in use"
        with pytest.raises(OSError, match=said) as caught:
            asyncio.run(HttpServer("127.0.0.1", port, {}).start())
    assert caught.value.errno == errno.EADDRINUSE


def test_stop_frees_the_port_and_may_be_called_twice() -> None:
    async def main() -> tuple[str, int]:
        server = node()
        address = await server.start()
        await server.stop()
        await server.stop()
        return address

    address = asyncio.run(main())
    with pytest.raises(ConnectionRefusedError):
        ask(address, "GET", "/health")


def test_garbage_closes_only_its_own_connection() -> None:
    def talk(address: tuple[str, int]) -> tuple[bytes, int]:
        with socket.create_connection(address, timeout=60) as raw:
            raw.sendall(b"\x00\x00\x00\x10garbage\r\n\r\n")
            answer = raw.recv(4096)
        return answer, ask(address, "GET", "/health")[0]

    answer, status = serving(node(), talk)
    assert status == 200
    assert answer == b"" or b" 400 " in answer


def test_starting_does_not_load_prometheus_before_it_is_needed() -> None:
    import subprocess

    program = """
import sys
import millstream.observability.broker_metrics, millstream.http.node_routes, millstream.http.server
assert not {"prometheus_client", "structlog"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
