"""A cluster's metadata in which three brokers are there and the leaders are as one likes."""

from uuid import UUID

from millstream.cluster.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from millstream.cluster.metadata.records import Endpoint


def image(**leaders: tuple[int, ...]) -> MetadataImage:
    """Topics and who leads their partitions; brokers 1 to 3 are there."""
    topics = {
        name: TopicImage(
            name,
            UUID(int=number),
            tuple(PartitionImage(index, (1, 2, 3), (1, 2, 3), each, 0, 0) for index, each in enumerate(of)),
            {},
        )
        for number, (name, of) in enumerate(leaders.items(), 1)
    }
    brokers = {
        number: BrokerImage(number, 1, UUID(int=number), (Endpoint("PLAINTEXT", "h", 9092),), None)
        for number in (1, 2, 3)
    }
    return MetadataImage(
        brokers=brokers, topics=topics, topics_by_id={each.topic_id: each for each in topics.values()}
    )
