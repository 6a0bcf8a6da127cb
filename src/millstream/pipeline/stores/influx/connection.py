"""One kept-alive HTTP connection to an InfluxDB server, with bounded retries.

Written on `http.client`: it needs no more than one request at a time, on executors too, where the standard library
is all that is sure to be there.
"""

import gzip
import http.client
import json
import random
import time
from dataclasses import dataclass

from millstream.pipeline.stores.errors import StoreError, StoreUnavailable
from millstream.pipeline.stores.influx.target import InfluxTarget

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_OVERLOADED = frozenset({408, 425, 429})
_MISCONFIGURED = frozenset({401, 403, 404, 405})


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server understood and will not take it, however often it is asked."""

    status: int
    reason: str


class QueryRefused(StoreError):
    """The server does not accept a query."""


class InfluxConnection:
    def __init__(self, target: InfluxTarget) -> None:
        self.target = target
        self._http: http.client.HTTPConnection | None = None
        self._random = random.Random()  # noqa: S311 - jitter

    def write(self, lines: bytes | memoryview) -> Refusal | None:
        """Post lines; None when all are stored. Raises StoreUnavailable after the bounded retries."""
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        body: bytes | memoryview = lines
        if self.target.gzip:
            headers["Content-Encoding"] = "gzip"
            body = gzip.compress(lines, 1)
        status, answer = self._request_until_answered("POST", self.target.write_path, body, headers)
        return None if status < 300 else Refusal(status, _reason(answer))

    def query(self, path: str, body: bytes) -> bytes:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        status, answer = self._request_until_answered("POST", path, body, headers)
        if status >= 300:
            raise QueryRefused(
                f"InfluxDB at {self.target.address} refused a query ({status}): {_reason(answer)}"
            )
        return answer

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def _request_until_answered(
        self, method: str, path: str, body: bytes | memoryview, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        give_up_at = time.monotonic() + self.target.retry_for.total_seconds()
        pause_s = _FIRST_PAUSE_S
        while True:
            wait_s = 0.0
            try:
                status, answer, retry_after_s = self._request(method, path, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            else:
                if status < 500 and status not in _OVERLOADED | _MISCONFIGURED:
                    return status, answer
                problem = f"{status} {_reason(answer)}"
                if status in _MISCONFIGURED:
                    raise StoreUnavailable(
                        f"InfluxDB at {self.target.address} does not let us at {self.target.database!r}: {problem};"
                        " check the name, the token and the permissions"
                    )
                wait_s = retry_after_s
            wait_s = max(wait_s, self._random.uniform(pause_s / 2, pause_s))
            if time.monotonic() + wait_s > give_up_at:
                raise StoreUnavailable(
                    f"InfluxDB at {self.target.address} has not taken a request for"
                    f" {self.target.retry_for.total_seconds():g} s: {problem}; is it running?"
                )
            time.sleep(wait_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _request(
        self, method: str, path: str, body: bytes | memoryview, headers: dict[str, str]
    ) -> tuple[int, bytes, float]:
        if self._http is None:
            kind = (
                http.client.HTTPSConnection if self.target.scheme == "https" else http.client.HTTPConnection
            )
            self._http = kind(
                self.target.host, self.target.port, timeout=self.target.request_timeout.total_seconds()
            )
        if self.target.authorization is not None:
            headers = {**headers, "Authorization": self.target.authorization}
        self._http.request(method, path, body, {**headers, "Content-Length": str(len(body))})
        response = self._http.getresponse()
        answer = response.read()
        if response.will_close:
            self.close()
        return response.status, answer, _seconds(response.getheader("Retry-After"))


def _seconds(header: str | None) -> float:
    return min(float(header), _LONGEST_PAUSE_S) if header is not None and header.isdecimal() else 0.0


def _reason(answer: bytes) -> str:
    """What the server says: 1.x in `error`, 2.x in `message`."""
    text = answer.decode(errors="replace").strip()
    try:
        said = json.loads(text)
    except ValueError:
        return text[:1000]
    if isinstance(said, dict):
        text = str(said.get("error") or said.get("message") or text)
    return text[:1000]
