"""What a connection does with bytes: good ones, bad ones, slow ones, too many of them."""

import asyncio
import contextlib
from typing import Any

import pytest

from millstream.http.access import Hosts
from millstream.http.connection import Connection, Limits, Shared
from millstream.http.messages import Problem, Request, Response, Sink, Stream
from millstream.http.routes import Route, Routes
from support.raw_http import Raw, raw_server, run

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def echo(request: Request) -> Response:
    return Response(request.body, content_type="text/plain")


async def slow_echo(request: Request) -> Response:
    await asyncio.sleep(0)
    return echo(request)


ROUTES = {
    "GET /": lambda _request: Response(b"root"),
    "POST /echo": Route(echo, max_body_bytes=1_000),
    "POST /slow": Route(slow_echo, max_body_bytes=1_000),
}


def post(body: bytes, path: str = "/echo", extra: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_pipelined_requests_are_answered_in_order() -> None:
    async def test() -> None:
        async with raw_server(ROUTES) as (_, connect):
            raw = await connect()
            await raw.send(post(b"1", "/slow") + post(b"2") + post(b"3", "/slow") + GET + post(b"", "/none"))
            assert [(await raw.read())[::2] for _ in range(4)] == [
                (200, b"1"), (200, b"2"), (200, b"3"), (200, b"root"),
            ]  # fmt: skip
            status, headers, _ = await raw.read()
            assert (status, headers["connection"]) == (404, "close")
            assert await raw.read_to_end() == b""

    run(test)


def test_more_pipelined_requests_than_the_limit_are_refused() -> None:
    async def test() -> None:
        waiting = asyncio.Event()

        async def wait(_request: Request) -> Response:
            await waiting.wait()
            return Response(b"")

        async with raw_server({"GET /": wait}) as (_, connect):
            raw = await connect()
            await raw.send(GET * 200)
            waiting.set()
            answers = (await raw.read_to_end()).split(b"HTTP/1.1 ")[1:]
            assert {answer[:3] for answer in answers[:-1]} == {b"200"}
            assert answers[-1].startswith(b"503")
            assert len(answers) < 200

    run(test)


def test_a_body_comes_in_pieces_and_chunks() -> None:
    async def test() -> None:
        async with raw_server(ROUTES) as (_, connect):
            raw = await connect()
            for byte in post(b"abc"):
                await raw.send(bytes([byte]))
            assert (await raw.read())[::2] == (200, b"abc")
            await raw.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            await raw.send(b"1\r\na\r\n2;ext=1\r\nbc\r\n0\r\nTrailer: ignored\r\n\r\n")
            assert (await raw.read())[::2] == (200, b"abc")

    run(test)


def test_http_1_0_is_closed_unless_it_asks_to_stay() -> None:
    async def test() -> None:
        async with raw_server(ROUTES) as (_, connect):
            raw = await connect()
            await raw.send(b"GET / HTTP/1.0\r\n\r\n")
            assert (await raw.read_to_end()).endswith(b"root")
            raw = await connect()
            await raw.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2)
            assert (await raw.read())[1]["connection"] == "keep-alive"
            assert (await raw.read())[2] == b"root"

    run(test)


def test_a_client_that_asks_first_is_told_to_continue_or_not() -> None:
    async def test() -> None:
        async with raw_server(ROUTES) as (_, connect):
            raw = await connect()
            ask = "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "
            await raw.send(f"{ask}2\r\n\r\n".encode())
            assert (await raw.head())[0] == 100
            await raw.send(b"ab")
            assert (await raw.read())[::2] == (200, b"ab")
            await raw.send(f"{ask}2000\r\n\r\n".encode())
            assert (await raw.read())[0] == 413

    run(test)


LONG = b"x" * 50_000


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x00\x01\x02\x03\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n", 421),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + LONG + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + LONG, 431),
        (b"GET /" + LONG + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"A%d: 1\r\n" % n for n in range(200)) + b"\r\n", 431),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + LONG[:1001], 413),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: " + LONG, 431),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\n\r\n", 403),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nOrigin: null\r\n\r\n", 403),
    ],
)  # fmt: skip
def test_a_bad_request_is_told_why_and_ends_its_connection(data: bytes, status: int) -> None:
    async def test() -> None:
        async with raw_server(ROUTES) as (server, connect):
            raw = await connect()
            await raw.send(data)
            answered, headers, body = await raw.read()
            assert (answered, headers["connection"]) == (status, "close")
            assert body.startswith(b'{"error":')
            assert await raw.read_to_end() == b""
            other = await connect()
            await other.send(GET)
            assert (await other.read())[0] == 200
            assert server.buffered_bytes == 0

    run(test)


def test_a_page_of_the_same_origin_may_post() -> None:
    async def test() -> None:
        async with raw_server(ROUTES) as (_, connect):
            raw = await connect()
            await raw.send(
                b"POST /echo HTTP/1.1\r\nHost: LocalHost:80\r\nOrigin: http://localhost:80\r\n\r\n"
            )
            assert (await raw.read())[0] == 200

    run(test)


def test_a_refused_body_is_read_to_its_end_so_that_the_answer_arrives() -> None:
    async def test() -> None:
        async with raw_server(ROUTES) as (_, connect):
            raw = await connect()
            await raw.send(post(b"x" * 2_000_000))
            assert (await raw.read())[0] == 413

    run(test)


def test_bodies_of_all_connections_share_a_limit() -> None:
    async def test() -> None:
        limits = Limits(max_buffered_bytes=1_500)
        async with raw_server(ROUTES, limits) as (server, connect):
            first, second = await connect(), await connect()
            await first.send(post(b"x" * 1_000)[:-1])
            while server.buffered_bytes < 999:  # noqa: ASYNC110 - the loop's own turns are what it waits for
                await asyncio.sleep(0)
            await second.send(post(b"x" * 1_000))
            status, headers, _ = await second.read()
            assert (status, headers["retry-after"]) == (503, "1")
            await first.send(b"x")
            assert (await first.read())[0] == 200
            assert server.buffered_bytes == 0

    run(test)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [(b"", b""), (b"GET / HT", b"408"), (post(b"abc")[:-1], b"408"), (GET, b"200")],
    ids=["nothing", "half a head", "half a body", "nothing more"],
)
def test_a_client_that_takes_too_long_is_dropped(sent: bytes, answer: bytes) -> None:
    async def test() -> None:
        limits = Limits(read_s=0.0, keep_alive_s=0.0, linger_s=0.0)
        async with raw_server(ROUTES, limits) as (_, connect):
            raw = await connect()
            await raw.send(sent)
            said = b""
            with contextlib.suppress(ConnectionResetError):
                said = await raw.read_to_end()
            assert said[9:12] == answer

    run(test)


def test_connections_beyond_the_limit_are_told_so() -> None:
    async def test() -> None:
        async with raw_server(ROUTES, Limits(max_connections=1)) as (_, connect):
            first = await connect()
            await first.send(GET)
            assert (await first.read())[0] == 200
            second = await connect()
            assert (await second.read())[0] == 503
            await first.send(GET)
            assert (await first.read())[0] == 200

    run(test)


def test_a_handler_may_refuse_and_headers_cannot_be_injected() -> None:
    def refuse(_request: Request) -> Response:
        raise Problem(429, "too much", {"retry-after": "7"})

    async def inject(_request: Request) -> Response:
        return Response(b"", headers={"x-a": "1\r\nset-cookie: b"})

    async def test() -> None:
        async with raw_server({"GET /": refuse, "GET /inject": inject}) as (_, connect):
            raw = await connect()
            await raw.send(GET)
            status, headers, body = await raw.read()
            assert (status, headers["retry-after"], body) == (429, "7", b'{"error":"too much"}')
            await raw.send(b"GET /inject HTTP/1.1\r\nHost: x\r\n\r\n")
            status, headers, _ = await raw.read()
            assert (status, "set-cookie" in headers) == (500, False)

    run(test)


class Tap:
    """A stream that the test turns on, and that notes how it ended."""

    def __init__(self) -> None:
        self.sink: asyncio.Future[Sink] = asyncio.get_running_loop().create_future()
        self.go_on = asyncio.Event()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def answer(self, _request: Request) -> Stream:
        return Stream(self.run, heartbeat=b": \n\n")

    async def run(self, sink: Sink) -> None:
        self.sink.set_result(sink)
        try:
            await self.go_on.wait()
            self.ended.set_result("done")
        except asyncio.CancelledError:
            self.ended.set_result("cancelled")
            raise


def streaming(test: Any, limits: Limits | None = None) -> None:
    async def body() -> None:
        tap = Tap()
        async with raw_server({"GET /": tap.answer}, limits) as (server, connect):
            raw = await connect()
            await raw.send(GET)
            status, headers = await raw.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            assert headers["transfer-encoding"] == "chunked"
            await test(tap, raw, server)

    run(body)


def test_a_stream_is_sent_as_it_comes_and_the_connection_lives_on() -> None:
    async def test(tap: Tap, raw: Raw, _server: Any) -> None:
        sink = await tap.sink
        await sink.send(b"data: 1\n\n")
        assert await raw.chunk() == b"data: 1\n\n"
        await raw.send(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n")
        tap.go_on.set()
        assert await raw.chunk() == b""
        assert (await raw.read())[0] == 404

    streaming(test)


def test_a_stream_ends_when_its_client_goes() -> None:
    async def test(tap: Tap, raw: Raw, _server: Any) -> None:
        sink = await tap.sink
        raw.writer.close()
        assert await tap.ended == "cancelled"
        with pytest.raises(ConnectionError):
            await sink.send(b"x")

    streaming(test)


def test_a_quiet_stream_has_heartbeats() -> None:
    async def test(_tap: Tap, raw: Raw, _server: Any) -> None:
        assert [await raw.chunk() for _ in range(2)] == [b": \n\n"] * 2

    streaming(test, Limits(heartbeat_s=0.0))


def test_a_client_that_does_not_read_stops_its_stream_and_is_dropped() -> None:
    async def test(tap: Tap, _raw: Raw, _server: Any) -> None:
        sink = await tap.sink

        async def flood() -> None:
            for _ in range(10_000):
                await sink.send(b"x" * 100_000)

        with pytest.raises(ConnectionError):
            await flood()
        assert await tap.ended == "cancelled"

    streaming(test, Limits(stall_s=0.0))


def test_stopping_ends_streams_with_a_whole_answer() -> None:
    async def test(tap: Tap, raw: Raw, server: Any) -> None:
        await tap.sink
        await server.stop(60)
        assert await raw.read_to_end() == b"0\r\n\r\n"
        assert await tap.ended == "cancelled"

    streaming(test)


def test_stopping_lets_requests_under_way_finish() -> None:
    async def test() -> None:
        inside, go_on = asyncio.Event(), asyncio.Event()

        async def wait(_request: Request) -> Response:
            inside.set()
            await go_on.wait()
            return Response(b"whole")

        async with raw_server({"GET /": wait}) as (server, connect):
            raw, idle = await connect(), await connect()
            await raw.send(GET)
            await inside.wait()
            stopping = asyncio.ensure_future(server.stop(60))
            assert await idle.read_to_end() == b""
            go_on.set()
            status, headers, body = await raw.read()
            assert (status, headers["connection"], body) == (200, "close", b"whole")
            await stopping

    run(test)


def test_an_offer_of_another_protocol_is_ignored_and_the_body_is_kept() -> None:
    """As the HttpClient of Java 17 begins each connection."""
    offer = "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAA\r\nUpgrade: h2c\r\n"
    chunked = (
        f"POST /echo HTTP/1.1\r\nHost: x\r\n{offer}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    )

    async def test() -> None:
        async with raw_server(ROUTES) as (_, connect):
            raw = await connect()
            await raw.send(post(b"1", extra=offer) + post(b"2", extra=offer) + chunked.encode() + post(b"3"))
            assert [(await raw.read())[::2] for _ in range(4)] == [
                (200, b"1"), (200, b"2"), (200, b"abc"), (200, b"3"),
            ]  # fmt: skip
            for byte in post(b"in pieces", extra=offer):
                await raw.send(bytes([byte]))
            assert (await raw.read())[::2] == (200, b"in pieces")
            await raw.send(post(b"", extra=offer))
            assert (await raw.read())[::2] == (200, b"")
            await raw.send(post(b"1" * 2_000, extra=offer))
            assert (await raw.read())[0] == 413

    run(test)


def test_a_tunnel_is_refused() -> None:
    async def test() -> None:
        async with raw_server(ROUTES) as (_, connect):
            for extra in (b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"):
                raw = await connect()
                await raw.send(
                    b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n" + extra + b"\r\n" + GET
                )
                assert (await raw.read_to_end()).startswith(b"HTTP/1.1 404")

    run(test)


class Wire(asyncio.Transport):
    """Takes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def write(self, data: Any) -> None:
        self.written += data

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return False


def test_tiny_chunks_take_turns_and_a_body_of_known_length_does_not() -> None:
    count = 20_000
    chunked = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def test() -> None:
        shared = Shared(Routes({"POST /echo": Route(echo, max_body_bytes=100_000)}), Hosts(set()), Limits())
        wire, connection = Wire(), Connection(shared, asyncio.get_running_loop())
        connection.connection_made(wire)
        connection.data_received(chunked + b"1\r\nx\r\n" * count + b"0\r\n\r\n" + post(b"y" * 100_000))
        assert 0 < shared.buffered_bytes < count / 2
        for _ in range(100):
            await asyncio.sleep(0)
        assert shared.requests == 2
        assert b"\r\n\r\n" + b"x" * count + b"HTTP/1.1 200" in wire.written
        assert wire.written.endswith(b"\r\n\r\n" + b"y" * 100_000)
        connection.data_received(post(b"y" * 100_000))
        await asyncio.sleep(0)
        assert shared.requests == 3

    run(test)
