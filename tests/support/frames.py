"""Bodies of binary frames for /produce."""

from millstream.doors import Message
from millstream.protocol.message_frame import MessageFrame, encode_frame


def frame_of(message: Message) -> bytes:
    return encode_frame(MessageFrame(message.timestamp_ms, message.key, message.value, message.headers))
