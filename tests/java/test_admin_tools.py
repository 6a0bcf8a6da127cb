"""Kafka's admin tools and its Java producer, where a node has to answer as a Kafka cluster without security would."""

import subprocess
import time

import pytest
from confluent_kafka import Producer

from java.test_kafka_tools import (
    JARS,
    create,
    java,
    pytestmark,  # noqa: F401 - without the jars nothing of this can run
)
from support.node import NodeProcess

CONFIGS = "kafka.admin.ConfigCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


def configs(broker: NodeProcess, kind: str, name: str, *words: str) -> str:
    return java(
        CONFIGS, "--bootstrap-server", broker.bootstrap, "--entity-type", kind, "--entity-name", name, *words
    )


def failing(tool: str, *words: str) -> str:
    command = ["java", "-Xmx256m", "-cp", f"{JARS}/*", tool, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_features_are_listed(broker):
    listed = java(FEATURES, "--bootstrap-server", broker.bootstrap, "describe")
    assert {"metadata.version", "group.version", "share.version"} <= set(listed.split())


def test_settings_that_only_kafka_has_are_deleted_and_set_to_its_defaults(broker, new_topic):
    topic = new_topic()
    create(broker, topic, 1)
    configs(broker, "topics", topic, "--alter", "--delete-config", "remote.storage.enable,local.retention.ms")
    configs(broker, "topics", topic, "--alter", "--add-config", "remote.storage.enable=false")
    words = ["--bootstrap-server", broker.bootstrap, "--entity-type", "topics", "--entity-name", topic]
    assert "nosuch.setting" in failing(CONFIGS, *words, "--alter", "--add-config", "nosuch.setting=1")


def test_groups_and_brokers_have_settings_of_their_own(broker, new_topic):
    group = new_topic()
    configs(broker, "groups", group, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in configs(broker, "groups", group, "--describe")
    configs(broker, "brokers", "1", "--alter", "--add-config", "log.cleaner.backoff.ms=20000")
    assert "log.cleaner.backoff.ms=20000" in configs(broker, "brokers", "1", "--describe")
    configs(broker, "brokers", "1", "--alter", "--delete-config", "log.cleaner.backoff.ms")


@pytest.mark.parametrize("kind", ["users", "clients"])
def test_a_cluster_without_users_and_quotas_says_so(broker, kind):
    words = ["--bootstrap-server", broker.bootstrap, "--describe", "--entity-type", kind]
    assert "Exception" not in java(CONFIGS, *words)


def test_access_rules_are_switched_off(broker):
    said = failing("org.apache.kafka.tools.AclCommand", "--bootstrap-server", broker.bootstrap, "--list")
    assert "SecurityDisabledException" in said


def test_idempotent_producers_are_described(broker, new_topic):
    topic = new_topic()
    create(broker, topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    words = [
        "--bootstrap-server",
        broker.bootstrap,
        "describe-producers",
        "--topic",
        topic,
        "--partition",
        "0",
    ]
    assert len(java(TRANSACTIONS, *words).strip().splitlines()) == 2


def test_a_transactional_producer_ends_with_the_reason(broker, new_topic):
    topic = new_topic()
    create(broker, topic, 1)
    began = time.monotonic()
    said = failing(
        PERFORMANCE, "--topic", topic, "--num-records", "1", "--record-size", "1", "--throughput", "-1",
        "--command-property", f"bootstrap.servers={broker.bootstrap}", "--transactional-id", topic,
    )  # fmt: skip
    assert "TransactionalIdAuthorizationException" in said
    # Its own limit, after which it would end with another error, is a minute.
    assert time.monotonic() - began < 55
