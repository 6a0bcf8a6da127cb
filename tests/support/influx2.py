"""The documented endpoints of InfluxDB 2.x in front of a real 1.x server: Debian has no 2.x to test against.

What is real: line protocol, storage, InfluxQL. What stands in for 2.x: `/api/v2/write` with token, organisation and
bucket, its precisions, and the shape and status of its errors, as its documentation describes them.
"""

import gzip
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from support.influx import InfluxProcess

TOKEN, ORGANISATION, BUCKET = "secret-token", "acme", "telemetry"
_PRECISIONS = {"ns": "n", "us": "u", "ms": "ms", "s": "s"}


@dataclass
class Influx2:
    behind: InfluxProcess
    url: str = ""
    encodings: list[str | None] = field(default_factory=list)
    busy_answers: int = 0
    """The next so many requests are answered with 429."""


@contextmanager
def influx2_in_front_of(behind: InfluxProcess) -> Iterator[Influx2]:
    state = Influx2(behind)
    behind.query(f'CREATE DATABASE "{BUCKET}"')
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"state": state}))
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    state: Influx2
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        target = urlsplit(self.path)
        options = {name: values[0] for name, values in parse_qs(target.query).items()}
        if self.headers["Authorization"] != f"Token {TOKEN}":
            self._answer(401, {"code": "unauthorized", "message": "unauthorized access"})
        elif self.state.busy_answers:
            self.state.busy_answers -= 1
            self._answer(429, {"code": "too many requests", "message": "slow down"}, {"Retry-After": "0"})
        elif target.path == "/api/v2/write":
            self._write(options, body)
        elif target.path == "/query":
            self._pass_on(f"{self.state.behind.url}/query", body)
        else:
            self._answer(404, {"code": "not found", "message": "path not found"})

    def _write(self, options: dict[str, str], body: bytes) -> None:
        self.state.encodings.append(self.headers["Content-Encoding"])
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        if options.get("org") != ORGANISATION:
            self._answer(404, {"code": "not found", "message": "organization name not found"})
        elif options.get("bucket") != BUCKET:
            self._answer(404, {"code": "not found", "message": f'bucket "{options.get("bucket")}" not found'})
        else:
            query = urlencode({"db": BUCKET, "precision": _PRECISIONS[options.get("precision", "ns")]})
            self._pass_on(f"{self.state.behind.url}/write?{query}", body)

    def _pass_on(self, url: str, body: bytes) -> None:
        kind = self.headers["Content-Type"]
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, body, {"Content-Type": kind}), timeout=90
            ) as answer:
                self._answer(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            reason = json.loads(error.read())["error"]
            if "field type conflict" in reason:
                said = f"failure writing points to database: {reason}"
                self._answer(422, {"code": "unprocessable entity", "message": said})
            else:
                self._answer(400, {"code": "invalid", "message": reason})

    def _answer(
        self, status: int, content: bytes | dict[str, str], headers: dict[str, str] | None = None
    ) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status != 204:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass
