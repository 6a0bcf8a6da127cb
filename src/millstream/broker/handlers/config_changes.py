"""Submitting config changes, for the two APIs that ask for them in different words."""

from collections.abc import Callable
from typing import Any

from millstream.broker.handlers.admin import code_of, message_of, others_first
from millstream.cluster.metadata.configs import AlterationOutcome, AlterConfigs, ConfigAlteration
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.metadata.slices import slices_of
from millstream.protocol.errors import KafkaError

# Resources changed by one command.
_AT_ONCE = 100


async def alter(
    metadata: MetadataService,
    defaults: Defaults,
    alterations: tuple[ConfigAlteration, ...],
    validate_only: bool,
    response: Callable[..., Any],
) -> tuple[Any, ...]:
    """One `response` for each resource, refused or not."""
    outcomes: list[AlterationOutcome] = []
    for some in slices_of(alterations, _AT_ONCE, _resource):
        command = AlterConfigs(some, validate_only=validate_only, defaults=defaults)
        try:
            outcomes += await metadata.submit(command)
        except KafkaError as error:
            resources = dict.fromkeys(map(_resource, some))
            outcomes += [AlterationOutcome(*resource, error) for resource in resources]
        await others_first()
    return tuple(
        response(
            error_code=code_of(outcome.error),
            error_message=message_of(outcome.error),
            resource_type=outcome.resource_type,
            resource_name=outcome.name,
        )
        for outcome in outcomes
    )


def _resource(alteration: ConfigAlteration) -> tuple[int, str]:
    return alteration.resource_type, alteration.name
