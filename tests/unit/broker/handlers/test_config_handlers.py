"""Settings of topics and brokers, described and altered by clients."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.alter_configs.v2 import request as alter_v2
from kio.schema.describe_configs.v4 import request as describe_configs_v4
from kio.schema.incremental_alter_configs.v1 import request as incremental_v1
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest

from millstream.config.settings import Settings
from millstream.protocol.errors import ErrorCode
from support.admin_handlers import BROKER, TOPIC, in_loop, new_topic, running

GROUP = 32


def describe_request(resource_type: int, name: str, *keys: str, all_keys: bool = False) -> Any:
    resource = describe_configs_v4.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None if all_keys else keys
    )
    return describe_configs_v4.DescribeConfigsRequest(
        resources=(resource,), include_synonyms=True, include_documentation=True
    )


@in_loop
async def test_describing_a_topic_tells_where_a_value_comes_from(tmp_path: Path) -> None:
    settings = replace(Settings(), kafka={"log.retention.ms": "9"})
    async with running(tmp_path, new_topic("a", retention_ms="5"), settings=settings) as broker:
        response = await broker.call("describe_configs", describe_request(TOPIC, "a", "retention.ms"))
        (config,) = response.results[0].configs
        assert (config.value, config.config_source, config.config_type) == ("5", 1, 5)
        assert config.documentation
        assert [(each.name, each.value, each.source) for each in config.synonyms] == [
            ("retention.ms", "5", 1),
            ("log.retention.ms", "9", 4),
            ("log.retention.ms", "604800000", 5),
        ]


@in_loop
async def test_describing_everything_lists_every_topic_config(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a")) as broker:
        one = await broker.call("describe_configs", describe_request(TOPIC, "a", all_keys=True))
        empty = await broker.call("describe_configs", describe_request(TOPIC, "a"))
        assert len(one.results[0].configs) == len(empty.results[0].configs) > 20


@in_loop
async def test_describing_brokers(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.call("incremental_alter_configs", alteration(BROKER, "", ("log.retention.ms", 0, "7")))
        own = await broker.call(
            "describe_configs", describe_request(BROKER, "1", "log.retention.ms", "node.id")
        )
        found = {config.name: config for config in own.results[0].configs}
        assert (found["log.retention.ms"].value, found["log.retention.ms"].config_source) == ("7", 3)
        assert found["node.id"].read_only
        shared = await broker.call("describe_configs", describe_request(BROKER, ""))
        assert [(config.name, config.value) for config in shared.results[0].configs] == [
            ("log.retention.ms", "7")
        ]


@in_loop
async def test_a_broker_shows_what_tools_look_for(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        response = await broker.call("describe_configs", describe_request(BROKER, "1"))
        found = {config.name: config for config in response.results[0].configs}
        values = {
            "advertised.listeners": "PLAINTEXT://localhost:9092",
            "broker.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "log.dirs": str(tmp_path),
        }
        assert {name: found[name].value for name in values} == values
        assert {(found[name].config_source, found[name].read_only) for name in values} == {(4, True)}
        minimum = found["min.insync.replicas"]
        assert (minimum.value, minimum.config_source) == ("1", 3)
        refused = await broker.call(
            "incremental_alter_configs", alteration(BROKER, "1", ("listeners", 0, "PLAINTEXT://:1"))
        )
        assert refused.responses[0].error_code == ErrorCode.INVALID_CONFIG


@in_loop
async def test_the_least_in_sync_replicas_of_a_file_are_a_static_setting(tmp_path: Path) -> None:
    settings = replace(Settings(), kafka={"min.insync.replicas": "2"})
    async with running(tmp_path, settings=settings) as broker:
        request = describe_request(BROKER, "1", "min.insync.replicas")
        (config,) = (await broker.call("describe_configs", request)).results[0].configs
        assert (config.value, config.config_source) == ("2", 4)


@in_loop
async def test_a_consumer_group_may_set_its_session_within_bounds(tmp_path: Path) -> None:
    name = "consumer.session.timeout.ms"
    async with running(tmp_path) as broker:
        for value, code in (
            ("60000", ErrorCode.NONE),
            ("60001", ErrorCode.INVALID_CONFIG),
            ("44999", ErrorCode.INVALID_CONFIG),
        ):
            response = await broker.call(
                "incremental_alter_configs", alteration(GROUP, "g", (name, 0, value))
            )
            assert response.responses[0].error_code == code
        response = await broker.call("describe_configs", describe_request(GROUP, "g", name))
        (config,) = response.results[0].configs
        assert (config.value, config.config_source) == ("60000", 8)


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_describing_what_is_not_there_is_refused(
    tmp_path: Path, resource_type: int, name: str, code: ErrorCode
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            response = await broker.call("describe_configs", describe_request(resource_type, name))
            assert response.results[0].error_code is code
            assert response.results[0].configs == ()

    asyncio.run(main())


def alteration(resource_type: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    configs = tuple(
        incremental_v1.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    )
    resource = incremental_v1.AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=configs
    )
    return incremental_v1.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


@in_loop
async def test_altering_incrementally_and_replacing(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a", retention_ms="5")) as broker:
        request = alteration(TOPIC, "a", ("cleanup.policy", 2, "compact"), ("segment.ms", 0, "8"))
        response = await broker.call("incremental_alter_configs", request)
        assert response.responses[0].error_code is ErrorCode.NONE
        assert broker.metadata.image.topics["a"].configs == {
            "retention.ms": "5",
            "cleanup.policy": "delete,compact",
            "segment.ms": "8",
        }
        replacement = alter_v2.AlterConfigsRequest(
            resources=(
                alter_v2.AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name="a",
                    configs=(alter_v2.AlterableConfig(name="retention.ms", value="6"),),
                ),
            ),
            validate_only=False,
        )
        await broker.call("alter_configs", replacement)
        assert broker.metadata.image.topics["a"].configs == {"retention.ms": "6"}


@in_loop
async def test_a_refused_alteration_names_the_key(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a")) as broker:
        response = await broker.call(
            "incremental_alter_configs", alteration(TOPIC, "a", ("retention.msec", 0, "5"))
        )
        (refused,) = response.responses
        assert refused.error_code is ErrorCode.INVALID_CONFIG
        assert "retention.msec" in refused.error_message
        assert (refused.resource_type, refused.resource_name) == (TOPIC, "a")


@in_loop
async def test_list_config_resources(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("b"), new_topic("a")) as broker:
        everything = await broker.call("list_config_resources", ListConfigResourcesRequest(resource_types=()))
        found = [(each.resource_type, each.resource_name) for each in everything.config_resources]
        assert found == [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1")]
        brokers = await broker.call(
            "list_config_resources", ListConfigResourcesRequest(resource_types=(BROKER,))
        )
        assert len(brokers.config_resources) == 1
        unknown = await broker.call("list_config_resources", ListConfigResourcesRequest(resource_types=(99,)))
        assert unknown.error_code is ErrorCode.UNSUPPORTED_VERSION
        old = await broker.call(
            "list_config_resources", ListConfigResourcesRequest(resource_types=()), version=0
        )
        assert old.config_resources == ()
