"""Settings by Kafka's names."""

from dataclasses import fields

from millstream.config.group_table import GROUP_CONFIGS
from millstream.coordinator.groups.settings import GroupSettings, MigrationPolicy, group_settings


def test_nothing_set_means_kafkas_defaults() -> None:
    assert group_settings({"log.retention.ms": "1"}) == GroupSettings()


def test_settings_are_read_by_kafkas_names() -> None:
    settings = group_settings(
        {
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.assignors": "range, uniform",
            "group.consumer.migration.policy": "UPGRADE",
            "offsets.retention.minutes": "2",
        }
    )
    assert settings.group_initial_rebalance_delay_ms == 0
    assert settings.group_consumer_assignors == ("range", "uniform")
    assert settings.group_consumer_migration_policy is MigrationPolicy.UPGRADE
    assert settings.offsets_retention_ms == 120_000


def test_every_setting_that_is_offered_is_honoured_with_the_default_it_names() -> None:
    known = {field.name.replace("_", ".") for field in fields(GroupSettings)}
    for definition in GROUP_CONFIGS:
        assert definition.name in known
        assert group_settings({definition.name: str(definition.default)}) == GroupSettings()
