"""A cluster's brokers and topics as documents, for tools that read files."""

from typing import Any

from millstream.client.admin.face import Admin
from millstream.client.positions import TopicPartition


def brokers_document(admin: Admin) -> dict[str, Any]:
    found = admin.metadata()
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller,
        "brokers": [
            {"id": each.id, "host": each.host, "port": each.port, "rack": each.rack} for each in found.brokers
        ],
    }


def topics_document(admin: Admin) -> dict[str, Any]:
    """All topics but internal ones; of settings those that were set for the topic. A partition whose leader does not
    answer has no offsets."""
    topics = admin.list_topics()
    places = [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]
    starts, ends = admin.known_offsets(places, "earliest"), admin.known_offsets(places, "latest")
    documents = []
    for topic in topics:
        configs = {
            name: each.value
            for name, each in admin.topic_configs(topic.name).items()
            if each.source == "topic"
        }
        partitions = [
            {
                "id": each.partition,
                "leader": each.leader,
                "replicas": each.replicas,
                "isr": each.in_sync_replicas,
                "first_offset": starts.get(TopicPartition(topic.name, each.partition)),
                "high_watermark": ends.get(TopicPartition(topic.name, each.partition)),
            }
            for each in topic.partitions
        ]
        documents.append(
            {
                "name": topic.name,
                "id": topic.topic_id,
                "partition_count": len(topic.partitions),
                "replication_factor": topic.replication_factor,
                "configs": configs,
                "partitions": partitions,
            }
        )
    return {"topics": documents}
