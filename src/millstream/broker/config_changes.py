"""Submitting config changes, for the two APIs that ask for them in different words."""

from collections.abc import Callable
from typing import Any

from millstream.broker.admin import AdminBroker, code_of, defaults_of, message_of
from millstream.cluster.metadata.configs import AlterationOutcome, AlterConfigs, ConfigAlteration
from millstream.protocol.errors import KafkaError


async def alter(
    broker: AdminBroker,
    alterations: tuple[ConfigAlteration, ...],
    validate_only: bool,
    response: Callable[..., Any],
) -> tuple[Any, ...]:
    """One `response` for each resource, refused or not."""
    command = AlterConfigs(alterations, validate_only=validate_only, defaults=defaults_of(broker))
    try:
        outcomes = await broker.metadata.submit(command)
    except KafkaError as error:
        resources = dict.fromkeys((a.resource_type, a.name) for a in alterations)
        outcomes = tuple(AlterationOutcome(*resource, error) for resource in resources)
    return tuple(
        response(
            error_code=code_of(outcome.error),
            error_message=message_of(outcome.error),
            resource_type=outcome.resource_type,
            resource_name=outcome.name,
        )
        for outcome in outcomes
    )
