"""A call whose reply comes later."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

from millstream.broker.api.call import Call, ReplySlot


class Order:
    """The replies of one connection."""

    def expect(self, reply: ReplySlot) -> None:
        self.expected = reply

    def completed(self, reply: ReplySlot) -> None:
        self.sent = reply.buffers


class Work:
    """As a fetch that waits: it keeps its call, and is called when the caller is gone or others wait for its reply."""

    def __init__(self, call: Call) -> None:
        self.reply = call.reply_later(on_abandoned=self.stop, on_hurried=self.stop)
        self.records = bytearray(1 << 20)

    def stop(self) -> None: ...


def _call(order: Order) -> Call:
    served: Any = SimpleNamespace(
        clock=lambda: 0.0,
        duration=SimpleNamespace(observe=lambda _seconds: None),
        flexible_from=1,
        encode=lambda _version, answer, _throttle_ms: [answer],
    )
    way: Any = SimpleNamespace(replies=order)
    caller: Any = None
    return Call(caller, 0, 7, served, way, 0.0)


def test_an_answered_call_is_freed_without_the_garbage_collector() -> None:
    order = Order()
    work = Work(_call(order))
    gone = weakref.ref(work)
    gc.disable()
    try:
        work.reply.answer(b"found")
        del work, order.expected
        assert gone() is None
    finally:
        gc.enable()
    assert order.sent == [b"\0\0\0\x09\0\0\0\x07found"]


def test_a_call_is_answered_once() -> None:
    order = Order()
    work = Work(_call(order))
    work.reply.answer(b"first")
    sent = order.sent
    work.reply.answer(b"second")
    work.reply.answer_body([b"third"])
    work.reply.answer_series([7], [b"fourth"])
    assert order.sent is sent
