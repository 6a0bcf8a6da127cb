"""The topics that take dead letters: name and settings must allow it. A missing one may be made, as in Kafka 4.4."""

from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.metadata.topics import CreateTopics, NewTopic
from millstream.config.errors import ConfigError
from millstream.config.share_table import (
    TAKES_DEAD_LETTERS,
    check_dead_letter_topic,
    creates_dead_letter_topics,
)
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError

_log = get_logger("millstream.queues")


class DeadLetterTopics:
    def __init__(self, metadata: MetadataService, defaults: Defaults) -> None:
        self._metadata = metadata
        self._defaults = defaults

    async def partitions_of(self, topic: str) -> int:
        """How many the topic has; KafkaError with what to do if it takes no dead letters."""
        image = self._metadata.image
        broker = self._defaults.broker_configs(image)
        try:
            check_dead_letter_topic(topic, broker)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        found = image.topic(topic)
        if found is None and creates_dead_letter_topics(broker):
            return await self._create(topic)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"make the topic {topic} with {TAKES_DEAD_LETTERS}=true"
            )
        if found.configs.get(TAKES_DEAD_LETTERS, "").strip().lower() != "true":
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"set {TAKES_DEAD_LETTERS}=true for the topic {topic}")
        return len(found.partitions)

    async def _create(self, topic: str) -> int:
        new = NewTopic(topic, configs=((TAKES_DEAD_LETTERS, "true"),))
        [created] = await self._metadata.submit(CreateTopics((new,), defaults=self._defaults))
        if created.error is not None:
            # It may be there by now: the letter is tried again in any case.
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the topic {topic} could not be made: {created.error.message}",
            )
        _log.info("topic for dead letters made", topic=topic, partitions=created.partitions)
        return created.partitions
