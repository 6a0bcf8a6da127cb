"""Deleting groups, and why one could not be deleted."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from millstream.cli.errors import CommandError, NoAnswer, kafka_failure
from millstream.cli.group_view import unknown_group
from millstream.cli.kafka import REQUEST_TIMEOUT_S


def delete_group_calls(client: AdminClient, names: Sequence[str]) -> "dict[str, Future[Any]]":
    return client.delete_consumer_groups(list(names), request_timeout=REQUEST_TIMEOUT_S)


def failure_of(name: str, call: "Future[Any]", bootstrap: str) -> CommandError | None:
    try:
        call.result(timeout=REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.GROUP_ID_NOT_FOUND:
            return unknown_group(name, bootstrap)
        if code == KafkaError.NON_EMPTY_GROUP:
            return CommandError(
                f"group {name!r} has active members; stop them first (`millstream group describe {name}`)"
            )
        return kafka_failure(f"cannot delete group {name!r}", error.args[0], bootstrap)
    except TimeoutError:
        return NoAnswer(f"cannot delete group {name!r}", "no answer in time")
    return None
