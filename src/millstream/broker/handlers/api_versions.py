"""ApiVersions: what this broker serves. Answered by hand, it is the first thing every client asks."""

from functools import cache
from typing import TYPE_CHECKING

from millstream.broker.api.dispatch import RequestContext
from millstream.protocol.api import APIS
from millstream.protocol.errors import ErrorCode
from millstream.protocol.wire import I16, I32, array_length

if TYPE_CHECKING:
    from millstream.broker.node import Broker


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    context.reply([_body(context.version, ErrorCode.NONE)])


def refuse_version(broker: "Broker", context: RequestContext) -> None:
    """A client of a newer protocol than ours learns our versions from a version 0 reply."""
    context.reply([_body(0, ErrorCode.UNSUPPORTED_VERSION)])


@cache
def _body(version: int, error: ErrorCode) -> bytes:
    flexible = version >= 3
    tags = b"\0" if flexible else b""
    body = I16.pack(error) + array_length(len(APIS), flexible=flexible)
    for api in APIS.values():
        body += I16.pack(api.key) + I16.pack(api.min_version) + I16.pack(api.max_version) + tags
    if version >= 1:
        body += I32.pack(0)
    return body + tags
