"""Reading requests and writing replies, by API: most from kio's description, the frequent ones by hand.

Imported with the first request. A request larger than `large_bytes` is read in a thread.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from millstream.broker.api.call import Encoded
from millstream.broker.server.long_work import LARGE_REPLY_ELEMENTS, LARGE_REQUEST_BYTES
from millstream.broker.server.replies import Reply
from millstream.protocol.api import APIS, Api, encode_features
from millstream.protocol.codec import import_kio
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.wire import I16, I32, MalformedRequest, array_length

Decode = Callable[[memoryview, int, int], Any]
"""Takes the buffer, the position of the body in it, and the version."""
Encode = Callable[[int, Any, int], Reply]
"""Takes the version, the answer, and the throttle time in milliseconds."""

_ANY_SIZE = 1 << 62


Series = Callable[[memoryview, int], Any]
"""Decodes a series of requests of the given size each at the start of the buffer; None where there is none."""


class Codec(msgspec.Struct, frozen=True):
    decode: Decode
    encode: Encode
    failure: Callable[[int, KafkaError], Any] = lambda _version, _error: None
    """An answer that holds only an error of the whole request; None where this version has no field for one."""
    is_large: Callable[[int, Any], bool] = lambda _version, _answer: False
    """Whether encoding the answer would hold up other requests."""
    large_bytes: int = _ANY_SIZE
    series: Series | None = None
    is_cold: bool = False
    """Whether answers are of kio's classes: these may be large, and have their own error codes."""


def codec_of(api: Api) -> Codec:
    make = _BY_HAND.get(api.name)
    return _from_kio(api) if make is None else make()


def _from_kio(api: Api) -> Codec:
    # Before the handler, which imports parts of it.
    import_kio()
    from millstream.protocol.codec import count_elements, decode_request, encode_reply, error_response

    return Codec(
        lambda buffer, position, version: decode_request(api, version, buffer[position:]),
        lambda version, answer, throttle_ms: [encode_reply(api, version, answer, throttle_ms)],
        lambda version, error: error_response(api, version, error.code, error.message),
        lambda version, answer: (
            count_elements(api, version, answer, LARGE_REPLY_ELEMENTS) > LARGE_REPLY_ELEMENTS
        ),
        LARGE_REQUEST_BYTES,
        is_cold=True,
    )


def _produce() -> Codec:
    from millstream.protocol.produce import decode_produce, encode_produce_reply

    return Codec(
        # Never in a thread: the decoded request has views of the buffer.
        decode_produce,
        lambda version, outcomes, throttle_ms: [encode_produce_reply(version, outcomes, throttle_ms)],
    )


def _fetch() -> Codec:
    from millstream.protocol.fetch import ERRORS_FROM, FetchAnswer, decode_fetch, encode_fetch_reply

    def encode(version: int, answer: FetchAnswer | Encoded, throttle_ms: int) -> Reply:
        if isinstance(answer, Encoded):
            return list(answer.body)
        partitions, session_id, error = answer
        return encode_fetch_reply(
            version, partitions, error=error, session_id=session_id, throttle_ms=throttle_ms
        )

    def failure(version: int, error: KafkaError) -> FetchAnswer | None:
        return FetchAnswer(error=error.code) if version >= ERRORS_FROM else None

    return Codec(decode_fetch, encode, failure, large_bytes=64 * 1024)


def _metadata() -> Codec:
    from millstream.protocol.metadata import (
        ERRORS_FROM,
        decode_metadata,
        encode_metadata_refusal,
        encode_metadata_reply,
    )

    def encode(version: int, answer: Any, throttle_ms: int) -> Reply:
        if isinstance(answer, Encoded):
            return list(answer.body)
        request, cluster, topics = answer
        return [encode_metadata_reply(version, request, cluster, topics, throttle_ms)]

    def failure(version: int, error: KafkaError) -> Encoded | None:
        return Encoded([encode_metadata_refusal(version, error.code)]) if version >= ERRORS_FROM else None

    return Codec(decode_metadata, encode, failure, large_bytes=16 * 1024)


def _offset_commit() -> Codec:
    from millstream.protocol.offset_commit import decode_offset_commit, encode_offset_commit_reply

    return Codec(
        decode_offset_commit,
        lambda version, topics, throttle_ms: [encode_offset_commit_reply(version, topics, throttle_ms)],
        is_large=lambda _version, topics: sum(len(each.partitions) for each in topics) > LARGE_REPLY_ELEMENTS,
        # A million offsets would hold up other requests for seconds.
        large_bytes=64 * 1024,
    )


def _share_fetch() -> Codec:
    from millstream.protocol.share_fetch import ShareFetchAnswer, decode_share_fetch, encode_share_fetch_reply

    return Codec(
        decode_share_fetch,
        lambda _version, answer, throttle_ms: encode_share_fetch_reply(answer, throttle_ms),
        lambda _version, error: ShareFetchAnswer(error.code, error.message),
        large_bytes=64 * 1024,
    )


def _share_acknowledge() -> Codec:
    from millstream.protocol.share_acknowledge import (
        AcknowledgeAnswer,
        decode_share_acknowledge,
        encode_share_acknowledge_reply,
        read_series,
    )

    return Codec(
        decode_share_acknowledge,
        lambda version, answer, throttle_ms: [encode_share_acknowledge_reply(version, answer, throttle_ms)],
        lambda _version, error: AcknowledgeAnswer(error.code, error.message),
        large_bytes=64 * 1024,
        series=read_series,
    )


def _api_versions() -> Codec:
    def failure(_version: int, error: KafkaError) -> ErrorCode:
        return error.code

    return Codec(lambda _buffer, _position, _version: None, encode_versions, failure)


def encode_versions(version: int, error: ErrorCode, throttle_ms: int) -> Reply:
    """A client of a newer protocol than ours learns our versions from a reply of version 0."""
    flexible = version >= 3
    tags = _features() if flexible else b""
    throttle = I32.pack(throttle_ms) if version >= 1 else b""
    return [I16.pack(error) + _served_versions(flexible) + throttle + tags]


_features = cache(encode_features)


@cache
def _served_versions(flexible: bool) -> bytes:
    tags = b"\0" if flexible else b""
    served = (
        I16.pack(api.key) + I16.pack(api.min_version) + I16.pack(api.max_version) + tags
        for api in APIS.values()
    )
    return array_length(len(APIS), flexible=flexible) + b"".join(served)


def _of_nodes(decode: Callable[[memoryview], Any], encode: Callable[[Any], bytes]) -> Codec:
    """Messages between nodes have one version and no throttle time."""
    return Codec(
        lambda buffer, position, _version: decode(buffer[position:]),
        lambda _version, answer, _throttle_ms: [encode(answer)],
    )


def _peer_hello() -> Codec:
    from millstream.broker.peers.hello import decode_hello, encode

    return _of_nodes(decode_hello, encode)


def _peer_quorum() -> Codec:
    return _of_nodes(lambda part: part, bytes)


def _peer_command() -> Codec:
    from millstream.cluster.metadata.command_codec import BadCommand, decode_command

    def decode(body: memoryview) -> Any:
        try:
            return decode_command(bytes(body))
        except BadCommand as error:
            raise MalformedRequest(str(error)) from error

    return _of_nodes(decode, bytes)


def _peer_client() -> Codec:
    from millstream.protocol.peer_client import decode_greeting

    return _of_nodes(decode_greeting, lambda _: b"")


def _peer_founding() -> Codec:
    from millstream.cluster.founding_messages import decode_request, encode

    return _of_nodes(decode_request, encode)


def _node_call() -> Codec:
    return _of_nodes(lambda body: body, bytes)


def _queue_call() -> Codec:
    # Copied: the request may wait, and the buffer is reused.
    return _of_nodes(lambda body: memoryview(bytes(body)), bytes)


def _log_checksum() -> Codec:
    from millstream.protocol.log_checksum import decode_checksum_request, encode_checksum_reply

    return _of_nodes(decode_checksum_request, lambda answer: encode_checksum_reply(*answer))


def _log_faults() -> Codec:
    from millstream.protocol.log_faults import decode_log_faults_request, encode_log_faults

    return _of_nodes(decode_log_faults_request, encode_log_faults)


_BY_HAND: dict[str, Callable[[], Codec]] = {
    "produce": _produce,
    "fetch": _fetch,
    "metadata": _metadata,
    "offset_commit": _offset_commit,
    "share_fetch": _share_fetch,
    "share_acknowledge": _share_acknowledge,
    "api_versions": _api_versions,
    "peer_hello": _peer_hello,
    "peer_quorum": _peer_quorum,
    "peer_command": _peer_command,
    "peer_client": _peer_client,
    "peer_founding": _peer_founding,
    "node_call": _node_call,
    "queue_call": _queue_call,
    "log_checksum": _log_checksum,
    "log_faults": _log_faults,
}
