"""Our own requests about queues, from whoever can reach the port."""

import pytest

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.queue_call import LookAtQueues, decode_request, encode_request


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", encode_request(LookAtQueues("abc")).replace(b"abc", b"\xed\xa0\x80")]
)
def test_what_is_no_request_is_refused(data: bytes) -> None:
    """Text that is no UTF-8 ended the connection, with a trace in the log."""
    with pytest.raises(KafkaError) as refused:
        decode_request(memoryview(data))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
