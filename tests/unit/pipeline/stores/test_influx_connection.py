"""Retries of the InfluxDB connection against a server that does what the test says."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from millstream.pipeline.stores.base import StoreUnavailable
from millstream.pipeline.stores.influx.connection import (
    InfluxConnection,
    InfluxTarget,
    QueryRefused,
    Refusal,
    parse_target,
)
from millstream.pipeline.stores.influx.posting import find_refused
from millstream.pipeline.stores.influx.queries import identifier, literal

Answers = list[tuple[int, bytes]]


@pytest.fixture
def serve() -> Iterator[Callable[[Answers], tuple[InfluxTarget, list[bytes]]]]:
    """A server with these answers, one after the other and then the last for ever; status 0 hangs up."""
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(answers: Answers) -> tuple[InfluxTarget, list[bytes]]:
        received: list[bytes] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                received.append(self.rfile.read(int(self.headers["Content-Length"])))
                status, body = answers.pop(0) if len(answers) > 1 else answers[0]
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        target = InfluxTarget(
            "http", "127.0.0.1", server.server_port, "", "db", gzip=False,
            request_timeout=timedelta(seconds=5), retry_for=timedelta(seconds=1),
        )  # fmt: skip
        return target, received

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def test_trouble_that_passes_is_waited_for(serve) -> None:
    target, received = serve([(500, b""), (0, b""), (503, b""), (429, b""), (204, b"")])
    connection = InfluxConnection(replace(target, retry_for=timedelta(seconds=60)))
    assert connection.write(b"m value=1\n") is None
    assert received == [b"m value=1\n"] * 5
    connection.close()


def test_trouble_that_stays_is_reported_with_what_the_server_said(serve) -> None:
    target, _ = serve([(503, b'{"error":"engine: cache-max-memory-size exceeded"}')])
    connection = InfluxConnection(target)
    with pytest.raises(StoreUnavailable, match=r"503 engine: cache-max-memory-size exceeded; is it running"):
        connection.write(b"x")
    connection.close()


def test_a_refusal_is_not_sent_again(serve) -> None:
    target, received = serve([(400, b'{"error":"partial write: field type conflict dropped=1"}')])
    connection = InfluxConnection(target)
    assert connection.write(b"x") == Refusal(400, "partial write: field type conflict dropped=1")
    assert len(received) == 1
    with pytest.raises(QueryRefused, match="refused a query"):
        connection.query("/query", b"q=")
    connection.close()


def test_only_the_bad_rows_are_refused_in_few_requests() -> None:
    lines = [f"m{row % 5},a=b value=1 {row}\n" for row in range(1000)]
    bad = {3, 500, 501, 777} | {row for row in range(1000) if row % 5 == 4}
    sent = []

    def send(rows) -> Refusal | None:
        sent.append(len(rows))
        wrong = [row for row in rows if row in bad]
        return Refusal(400, f"partial write: nonsense dropped={len(wrong)}") if wrong else None

    found = find_refused(send, lines, Refusal(400, "partial write dropped=204"))
    assert set(found) == bad
    assert len(sent) < 80, "a measurement that is refused as a whole takes one request"


def test_a_post_that_is_too_large_is_cut() -> None:
    def send(rows) -> Refusal | None:
        return Refusal(413, "Request Entity Too Large dropped=9") if len(rows) > 100 else None

    assert find_refused(send, ["m value=1 1\n"] * 1000, Refusal(413, "")) == {}


def test_names_and_values_are_quoted() -> None:
    assert identifier('a"b\\c') == '"a\\"b\\\\c"'
    assert literal("it's\n\\") == "'it\\'s\\n\\\\'"


@pytest.mark.parametrize(
    ("address", "gzip", "authorization"),
    [
        ("http://127.0.0.1:8086", False, None),
        ("http://localhost", False, None),
        ("https://influx.example:9999/base/", True, None),
        ("http://me:p%40ss@influx.example", True, "Basic bWU6cEBzcw=="),
    ],
)
def test_an_address_is_taken_apart(address: str, gzip: bool, authorization: str | None) -> None:
    target = parse_target(address, {"db": "d b"}, "", is_v2=False)
    assert (target.gzip, target.authorization) == (gzip, authorization)
    assert target.write_path.endswith("/write?db=d+b&precision=u")
    assert "p%40ss" not in target.address
