"""Functions shared by handlers of administrators' requests."""

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
    """Every client gives up at this code. An error of an absent coordinator would be retried forever."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "this cluster has no transactions; leave transactional.id (or exactly-once processing) out",
        )


def answer(response: Callable[..., Result], **fields: Any) -> Result:
    """A reply of kio's class. The encoder writes the real throttle time."""
    return response(throttle_time=_UNTHROTTLED, **fields)


def layers_of(defaults: Defaults, image: MetadataImage) -> BrokerLayers:
    """This broker's settings in layers of precedence, for describing the values in effect and their sources."""
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
    """Give other work a turn between two commands of one request."""
    await asyncio.sleep(0)


async def unhurried(items: Iterable[Item], size: int = 200) -> AsyncIterator[Item]:
    """Yields the items; after every `size` of them, other work has a turn."""
    for number, item in enumerate(items, 1):
        yield item
        if number % size == 0:
            await others_first()


def check_cluster_id(metadata: MetadataService, wanted: str | None) -> None:
    """Refuse a request that names another cluster."""
    known = metadata.image.cluster_id
    if wanted not in (None, known):
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is the cluster {known}, and the request is for {wanted}"
        )


def code_of(error: KafkaError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error.code


def message_of(error: KafkaError | None) -> str | None:
    return None if error is None else error.message
