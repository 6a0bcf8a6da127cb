"""Finds the topics that clients name, or creates them if the settings allow it."""

from millstream.config.proxy_settings import ProxySettings
from millstream.doors import (
    Authoriser,
    Caller,
    Metadata,
    NewTopic,
    Operation,
    Permission,
    Resource,
    TopicImage,
)
from millstream.doors.commands import invalid_name_reason
from millstream.gateway.problems import NO_BROKERS, UNKNOWN_TOPIC, busy, problem_of
from millstream.http.messages import Problem
from millstream.protocol.errors import ErrorCode

_INTERNAL = "__"
"""Prefix of the topics of the cluster and of its doors."""


class Topics:
    def __init__(self, metadata: Metadata, authoriser: Authoriser, settings: ProxySettings) -> None:
        self._metadata = metadata
        self._authoriser = authoriser
        self._settings = settings

    def known(self, name: str) -> TopicImage | None:
        """None also for the cluster's own topics, which no client may write."""
        return None if name.startswith(_INTERNAL) else self._metadata.image.topics.get(name)

    async def find(self, caller: Caller, name: str) -> TopicImage:
        """Find or create the topic. Raises `Problem` for an unknown one."""
        found = self.known(name)
        if found is not None:
            return found
        if not self._metadata.image.brokers:
            raise busy(NO_BROKERS)
        if (
            not self._settings.create_topics
            or name.startswith(_INTERNAL)
            or invalid_name_reason(name) is not None
        ):
            raise Problem(400, UNKNOWN_TOPIC)
        if not self._authoriser.allows(caller, Permission(Operation.CREATE, Resource.TOPIC, name)):
            raise Problem(400, UNKNOWN_TOPIC)
        (created,) = await self._metadata.create_topics(
            caller, [NewTopic(name, self._settings.max_partitions)]
        )
        if created.error is not None and created.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise problem_of(created.error)
        found = self.known(name)
        if found is None:
            raise Problem(400, UNKNOWN_TOPIC)
        return found

    def visible(self, caller: Caller) -> dict[str, TopicImage]:
        """The topics that the caller may describe."""
        return {
            name: topic
            for name, topic in sorted(self._metadata.image.topics.items())
            if not name.startswith(_INTERNAL)
            and self._authoriser.allows(caller, Permission(Operation.DESCRIBE, Resource.TOPIC, name))
        }
