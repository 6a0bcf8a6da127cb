"""DeleteShareGroupOffsets, version 0: forget where a group without members stands in topics."""

from typing import Any

from kio.schema.delete_share_group_offsets.v0.response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

from millstream.broker.handlers.admin import answer, code_of, message_of
from millstream.broker.shares.offsets import ShareOffsets
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode, KafkaError


async def delete(
    offsets: ShareOffsets, metadata: MetadataService, request: Any, call: Any
) -> DeleteShareGroupOffsetsResponse:
    names = dict.fromkeys(topic.topic_name for topic in request.topics)
    image = metadata.image
    try:
        outcomes = await offsets.delete(image, call.caller, request.group_id, names)
    except KafkaError as error:
        return answer(
            DeleteShareGroupOffsetsResponse, error_code=error.code, error_message=error.message, responses=()
        )
    return answer(
        DeleteShareGroupOffsetsResponse,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=tuple(
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=topic.topic_id if (topic := image.topic(name)) is not None else None,
                error_code=code_of(refused),
                error_message=message_of(refused),
            )
            for name, refused in outcomes.items()
        ),
    )
