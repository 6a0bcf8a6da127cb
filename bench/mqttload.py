"""An MQTT client that costs little itself: packets made beforehand, answers counted by their bytes.

MQTT 3.1.1, whose PUBACK, PUBREC, PUBREL and PUBCOMP are four bytes each. Any broker can be measured with it.
"""

import select
import socket
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from statistics import median

PAYLOAD = b"x" * 100
_READ_BYTES = 1 << 18
_WAIT_SECONDS = 60.0
_SECONDS_TO_WARM_UP = 0.5

Address = tuple[str, int]


class LoadError(Exception):
    """The broker did not do what was measured."""


def _text(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


def _packet(head: int, body: bytes) -> bytes:
    size, length = len(body), bytearray()
    while True:
        size, low = size >> 7, size & 0x7F
        length.append(low | (0x80 if size else 0))
        if not size:
            return bytes((head,)) + length + body


def _connect_packet(client_id: str, version: int, clean: bool) -> bytes:
    properties = b"\0" if version == 5 else b""
    flags = 2 if clean else 0
    return _packet(0x10, b"\0\4MQTT" + bytes((version, flags)) + b"\0\0" + properties + _text(client_id))


def publish_packet(
    topic: str, payload: bytes, qos: int = 0, packet_id: int = 0, *, retain: bool = False
) -> bytes:
    number = packet_id.to_bytes(2, "big") if qos else b""
    return _packet(0x30 | qos << 1 | retain, _text(topic) + number + payload)


def _subscribe_packet(text: str, qos: int, packet_id: int = 1) -> bytes:
    return _packet(0x82, packet_id.to_bytes(2, "big") + _text(text) + bytes((qos,)))


def _unsubscribe_packet(text: str) -> bytes:
    return _packet(0xA2, b"\0\2" + _text(text))


class Talker:
    """One connection; `take` is called with all that came."""

    def __init__(self, address: Address, client_id: str, *, version: int = 4, clean: bool = True) -> None:
        self.socket = socket.create_connection(address, timeout=_WAIT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(_connect_packet(client_id, version, clean))
        self.take: Callable[[bytes], None] = lambda _: None

    def connected(self) -> "Talker":
        answer = self.exactly(4)
        if answer[0] != 0x20 or answer[3]:
            raise LoadError(f"the broker answered CONNECT with {answer!r}")
        return self

    def exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            part = self.socket.recv(size - len(got))
            if not part:
                raise LoadError("the broker closed a connection")
            got += part
        return got

    def subscribe(self, text: str, qos: int) -> None:
        self.socket.sendall(_subscribe_packet(text, qos))
        answer = self.exactly(5)
        if answer[0] != 0x90 or answer[4] > 2:
            raise LoadError(f"the broker answered SUBSCRIBE with {answer!r}")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def close(self) -> None:
        self.socket.close()


def talkers(address: Address, count: int, prefix: str) -> list[Talker]:
    """Connected, many at a time."""
    opened: list[Talker] = []
    for first in range(0, count, 100):
        some = [Talker(address, f"{prefix}-{number}") for number in range(first, min(first + 100, count))]
        opened += [each.connected() for each in some]
    return opened


def _serve(some: Sequence[Talker], until: Callable[[], bool]) -> None:
    """Hand on what comes until the condition holds. LoadError when nothing comes for a minute."""
    poll = select.epoll()
    by_number = {each.socket.fileno(): each for each in some}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    heard = time.perf_counter()
    try:
        while not until():
            for number, _ in poll.poll(0.2):
                talker = by_number[number]
                data = talker.socket.recv(_READ_BYTES)
                if not data:
                    raise LoadError("the broker closed a connection")
                heard = time.perf_counter()
                talker.take(data)
            if time.perf_counter() - heard > _WAIT_SECONDS:
                raise LoadError(f"the broker has sent nothing for {_WAIT_SECONDS:.0f} s")
    finally:
        poll.close()


class _Window:
    """A publisher that keeps so many messages of QoS 1 or 2 under way."""

    def __init__(
        self, talker: Talker, topic: str, qos: int, window: int, payload: bytes, most: int | None = None
    ) -> None:
        self._talker = talker
        self._packets = [publish_packet(topic, payload, qos, number + 1) for number in range(2 * window)]
        self._ring = self._packets * 2
        self._next = 0
        self._window = window
        self._rest = b""
        self._left = most
        self.done = 0
        self.is_over = False
        talker.take = self._acknowledged if qos == 1 else self._second

    def start(self) -> None:
        self._more(self._window)

    def _more(self, count: int) -> None:
        if self._left is not None:
            count = min(count, self._left)
            self._left -= count
        if not self.is_over and count:
            self._talker.send(b"".join(self._ring[self._next : self._next + count]))
            self._next = (self._next + count) % len(self._packets)

    def _acknowledged(self, data: bytes) -> None:
        data = self._rest + data
        count = len(data) // 4
        self._rest = data[count * 4 :]
        if data[0] != 0x40:
            raise LoadError(f"the broker answered PUBLISH with {data[:8]!r}")
        self.done += count
        self._more(count)

    def _second(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) // 4 * 4
        self._rest = data[whole:]
        releases, completed = [], 0
        for at in range(0, whole, 4):
            if data[at] == 0x50:
                releases.append(b"\x62\x02" + data[at + 2 : at + 4])
            elif data[at] == 0x70:
                completed += 1
            else:
                raise LoadError(f"the broker answered PUBLISH with {data[at : at + 8]!r}")
        if releases:
            self._talker.send(b"".join(releases))
        self.done += completed
        self._more(completed)


def published_per_second(
    address: Address,
    qos: int,
    seconds: float,
    *,
    publishers: int = 10,
    window: int = 100,
    topic: str = "bench/{}",
    payload: bytes = PAYLOAD,
) -> float:
    """Messages of QoS 1 or 2 whose exchange is over; each publisher has a topic of its own."""
    opened = talkers(address, publishers, f"pub{qos}")
    try:
        windows = [
            _Window(each, topic.format(number), qos, window, payload) for number, each in enumerate(opened)
        ]
        for each in windows:
            each.start()
        _serve(opened, _after(_SECONDS_TO_WARM_UP))
        began, before = time.perf_counter(), sum(each.done for each in windows)
        _serve(opened, _after(seconds))
        rate = (sum(each.done for each in windows) - before) / (time.perf_counter() - began)
        for each in windows:
            each.is_over = True
        return rate
    finally:
        _close(opened)


def kept_per_second(address: Address, seconds: float) -> float:
    """The same with QoS 1, for a session that is away and gets it all when it comes back."""
    away = Talker(address, "away", clean=False).connected()
    away.subscribe("bench/away/#", 1)
    away.send(b"\xe0\x00")
    away.close()
    try:
        return published_per_second(address, 1, seconds, topic="bench/away/{}")
    finally:
        Talker(address, "away").connected().close()


def _after(seconds: float) -> Callable[[], bool]:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= end


class _Counter:
    """Messages of one size that a subscriber got."""

    def __init__(self, talker: Talker, size: int, most: int | None = None) -> None:
        self._size = size
        self.bytes = 0
        talker.take = self._take
        self._most = most

    def _take(self, data: bytes) -> None:
        self.bytes += len(data)

    @property
    def messages(self) -> int:
        return self.bytes // self._size


def delivered_per_second(address: Address, subscribers: int, seconds: float, *, ahead: int = 0) -> float:
    """One publisher of QoS 0 to many subscribers: as fast as they get it, `ahead` messages under way at most."""
    topic = "bench/fan-out"
    packet = publish_packet(topic, PAYLOAD)
    ahead = ahead or max(40, 20_000 // subscribers)
    opened = talkers(address, subscribers, "sub")
    publisher = talkers(address, 1, "fan-out")[0]
    try:
        for each in opened:
            each.subscribe(topic, 0)
        counters = [_Counter(each, len(packet)) for each in opened]
        sent = 0

        def run(until: Callable[[], bool]) -> bool:
            nonlocal sent
            got = sum(each.bytes for each in counters) / len(packet) / subscribers
            if sent - got < ahead / 2:
                publisher.send(packet * (ahead // 2))
                sent += ahead // 2
            return until()

        warm = _after(_SECONDS_TO_WARM_UP)
        _serve(opened, lambda: run(warm))
        began, before = time.perf_counter(), sum(each.bytes for each in counters)
        end = _after(seconds)
        _serve(opened, lambda: run(end))
        return (sum(each.bytes for each in counters) - before) / len(packet) / (time.perf_counter() - began)
    finally:
        _close([*opened, publisher])


def collected_per_second(address: Address, publishers: int, seconds: float) -> float:
    """Many publishers of QoS 1, each with four messages under way, to one subscriber of QoS 0."""
    topic = "bench/fan-in/{:04}"
    size = len(publish_packet(topic.format(0), PAYLOAD))
    opened = talkers(address, publishers, "in")
    reader = talkers(address, 1, "fan-in")[0]
    try:
        reader.subscribe("bench/fan-in/+", 0)
        counter = _Counter(reader, size)
        windows = [_Window(each, topic.format(number), 1, 4, PAYLOAD) for number, each in enumerate(opened)]
        for each in windows:
            each.start()
        everyone = [*opened, reader]
        _serve(everyone, _after(_SECONDS_TO_WARM_UP))
        began, before = time.perf_counter(), counter.bytes
        _serve(everyone, _after(seconds))
        return (counter.bytes - before) / size / (time.perf_counter() - began)
    finally:
        _close([*opened, reader])


def latencies_ms(address: Address, per_second: int, seconds: float) -> list[float]:
    """From PUBLISH of QoS 1 to its arrival at a subscriber of QoS 1; one that is late counts from when it was due."""
    topic = "bench/latency"
    publisher, reader = talkers(address, 2, "latency")
    found: list[float] = []
    rest = b""
    size = len(publish_packet(topic, b"x" * 100, 1, 1))
    began = 0.0

    def take(data: bytes) -> None:
        nonlocal rest
        data = rest + data
        now = time.perf_counter()
        whole = len(data) // size * size
        rest = data[whole:]
        acks = []
        for at in range(0, whole, size):
            number = at + 4 + len(topic)
            acks.append(b"\x40\x02" + data[number : number + 2])
            due = began + int(data[number + 2 : number + 14]) / per_second
            found.append((now - due) * 1000)
        if acks:
            reader.send(b"".join(acks))

    try:
        reader.subscribe(topic, 1)
        reader.take = take
        total = int(per_second * seconds)
        began = time.perf_counter()
        sent = 0
        by_socket = {each.socket: each for each in (publisher, reader)}
        while len(found) < total:
            now = time.perf_counter()
            if now - began > seconds + _WAIT_SECONDS:
                raise LoadError(f"{len(found)} of {total} messages arrived")
            while sent < total and began + sent / per_second <= now:
                payload = b"%012d" % sent + b"x" * 88
                publisher.send(publish_packet(topic, payload, 1, sent % 65_535 + 1))
                sent += 1
            wait = began + sent / per_second - time.perf_counter() if sent < total else 0.2
            # Not by epoll, which waits for whole milliseconds: that would be half a millisecond too late on average.
            for ready in select.select(by_socket, (), (), max(wait, 0))[0]:
                by_socket[ready].take(ready.recv(_READ_BYTES))
        return sorted(found)
    finally:
        _close([publisher, reader])


def retained_per_second(address: Address, topics: int, seconds: float) -> float:
    """Subscriptions to a topic with a retained message, each answered with it; 20 clients, one after another."""
    setter = talkers(address, 1, "retain")[0]
    opened = talkers(address, 20, "lookup")
    done = 0
    try:
        for first in range(0, topics, 100):
            some = range(first, min(first + 100, topics))
            setter.send(
                b"".join(
                    publish_packet(f"bench/kept/{number:06}", PAYLOAD, 1, number - first + 1, retain=True)
                    for number in some
                )
            )
            setter.exactly(4 * len(some))
        numbers = cycle(range(0, topics, 7))
        answers = 5 + len(publish_packet("bench/kept/000000", PAYLOAD))

        def next_lookup(talker: Talker) -> None:
            text = f"bench/kept/{next(numbers):06}"
            waiting = answers + 4
            talker.send(_subscribe_packet(text, 0) + _unsubscribe_packet(text))

            def take(data: bytes) -> None:
                nonlocal waiting, done
                waiting -= len(data)
                if waiting <= 0:
                    done += 1
                    next_lookup(talker)

            talker.take = take

        for each in opened:
            next_lookup(each)
        _serve(opened, _after(_SECONDS_TO_WARM_UP))
        began, before = time.perf_counter(), done
        _serve(opened, _after(seconds))
        return (done - before) / (time.perf_counter() - began)
    finally:
        _close([setter, *opened])


def connects_per_second(address: Address, seconds: float) -> float:
    """CONNECT to CONNACK to DISCONNECT, twenty at a time."""
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        some = [Talker(address, f"c-{done + number}") for number in range(20)]
        for each in some:
            each.connected().send(b"\xe0\x00")
            each.close()
        done += len(some)
    return done / (time.perf_counter() - began)


def worked_off_per_second(address: Address, queue: str, count: int, *, consumers: int = 10) -> float:
    """Messages of `$queue/{queue}` that ten consumers of one group got and acknowledged, with MQTT 5.

    Counted from when a tenth of them was worked off: before, the group is made and its members join.
    """
    user = b"".join(
        b"\x26" + _text(name) + _text(value)
        for name, value in (("consumer-group", "bench"), ("ack-mode", "packet"))
    )
    subscribe = _packet(0x82, b"\0\1" + bytes((len(user),)) + user + _text(f"$queue/{queue}") + b"\1")
    opened = [Talker(address, f"worker-{number}", version=5) for number in range(consumers)]
    done = 0

    def taker(talker: Talker) -> Callable[[bytes], None]:
        rest = b""

        def take(data: bytes) -> None:
            nonlocal rest, done
            data = rest + data
            acks, at, end = [], 0, len(data)
            while at + 4 < end:
                # Deliveries are between 128 bytes and 16 KB, so their length takes two bytes.
                stop = at + 3 + (data[at + 1] & 0x7F) + (data[at + 2] << 7)
                if stop > end:
                    break
                number = at + 5 + (data[at + 3] << 8 | data[at + 4])
                acks.append(b"\x40\x02" + data[number : number + 2])
                at = stop
            rest = data[at:]
            done += len(acks)
            if acks:
                talker.send(b"".join(acks))

        return take

    try:
        for each in opened:
            size = each.exactly(2)[1]
            each.exactly(size)
        for each in opened:
            each.send(subscribe)
        for each in opened:
            each.exactly(6)
            each.take = taker(each)
        _serve(opened, lambda: done >= count // 10)
        began, before = time.perf_counter(), done
        _serve(opened, lambda: done >= count)
        return (done - before) / (time.perf_counter() - began)
    finally:
        _close(opened)


def fill(address: Address, topic: str, count: int) -> None:
    """So many messages of QoS 1, and no more."""
    opened = talkers(address, 1, "filler")
    window = _Window(opened[0], topic, 1, 500, PAYLOAD, most=count)
    try:
        window.start()
        _serve(opened, lambda: window.done >= count)
    finally:
        _close(opened)


def idle_sessions(address: Address, count: int) -> list[Talker]:
    """Connected, each subscribed to a topic of its own; whoever asked closes them."""
    opened = talkers(address, count, "idle")
    for first in range(0, count, 100):
        some = opened[first : first + 100]
        for number, each in enumerate(some, first):
            each.send(_subscribe_packet(f"bench/idle/{number}", 1))
        for each in some:
            each.exactly(5)
    return opened


def percentiles(found: Sequence[float]) -> tuple[float, float]:
    return median(found), found[len(found) * 99 // 100]


def _close(some: Sequence[Talker]) -> None:
    for each in some:
        each.close()
