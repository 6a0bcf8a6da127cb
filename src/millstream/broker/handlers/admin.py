"""What the handlers of administrators' requests share."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.service import MetadataService
from millstream.config.describe import BrokerLayers
from millstream.protocol.errors import ErrorCode, KafkaError

Result = TypeVar("Result")
Item = TypeVar("Item")

_UNTHROTTLED = datetime.timedelta()


class NoTransactions(KafkaError):
    """Every client gives up at this code. A code that says that the coordinator is away would be retried for ever."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "this cluster has no transactions; leave transactional.id (or exactly-once processing) out",
        )


def answer(response: Callable[..., Result], **fields: Any) -> Result:
    """A reply of kio's class. Its throttle time is not the handler's business: the encoder writes it."""
    return response(throttle_time=_UNTHROTTLED, **fields)


def layers_of(defaults: Defaults, image: MetadataImage) -> BrokerLayers:
    """This broker's settings by strength, for describing what is in effect and why."""
    return BrokerLayers(
        dynamic=image.broker_configs.get(str(defaults.broker_id), {}),
        dynamic_default=image.broker_configs.get("", {}),
        static=defaults.static_configs,
    )


async def submit_within(
    metadata: MetadataService, command: Command[Result], patience: datetime.timedelta
) -> Result:
    """Submit a command and wait as long as the client does; the command may still be carried out afterwards.

    Clients that send no time limit (zero or less) wait without one.
    """
    seconds = patience.total_seconds()
    try:
        async with asyncio.timeout(seconds if seconds > 0 else None):
            return await metadata.submit(command)
    except TimeoutError:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            "the change is still under way; describe the resource to see its outcome",
        ) from None


async def others_first() -> None:
    """Between two commands of one request: other work has a turn."""
    await asyncio.sleep(0)


async def unhurried(items: Iterable[Item], size: int = 200) -> AsyncIterator[Item]:
    """Yields the items; after every few of them, other work has a turn."""
    for number, item in enumerate(items, 1):
        yield item
        if number % size == 0:
            await others_first()


def check_cluster_id(metadata: MetadataService, wanted: str | None) -> None:
    """A request that names a cluster is meant for that one only."""
    known = metadata.image.cluster_id
    if wanted not in (None, known):
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is the cluster {known}, and the request is for {wanted}"
        )


def code_of(error: KafkaError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error.code


def message_of(error: KafkaError | None) -> str | None:
    return None if error is None else error.message
