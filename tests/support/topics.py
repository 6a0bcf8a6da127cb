"""Topics as tests need them, made through librdkafka's admin client."""

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, NewTopic

from support.clients.confluent import SILENT


def create_topic(
    admin: AdminClient, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
) -> str:
    """Create a topic, return its name. Configs are by Kafka's names; values are turned into text."""
    wanted = {key: str(value) for key, value in (configs or {}).items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=wanted)])[name].result(90)
    return name


def admin_for(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": SILENT})
