"""ApiVersions, versions 0 to 4: what this broker serves. The first thing every client asks."""

from millstream.broker.api.call import Call
from millstream.protocol.errors import ErrorCode


def handle(_request: None, _call: Call) -> ErrorCode:
    """The codec knows the versions and the features."""
    return ErrorCode.NONE
