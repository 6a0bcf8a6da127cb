"""Creates the topics that the settings declare when there are enough brokers, and compares topics that exist.

Every node of a cluster does this, and the first that can creates them. A missing topic is waited for and never ends the
node. A topic that has existed is not created again while the node runs: an operator may have deleted it.
"""

import asyncio
from collections.abc import Iterator

from millstream.broker.machine import Tasks
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.cluster.metadata.machine import Records
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.metadata.topics import CreatedTopic, CreateTopics, NewTopic
from millstream.config.settings import Settings, TopicSettings
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.clock import Clock

log = get_logger("millstream.topics")

_AGAIN_SECONDS = 5.0
# Time for more brokers to start: partitions that are placed before get no replicas on them.
_COMPANY_SECONDS = 10.0
_WITHOUT_CONTROLLER = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE)


class DeclaredTopics:
    def __init__(
        self, settings: Settings, metadata: MetadataService, defaults: Defaults, clock: Clock
    ) -> None:
        self._metadata = metadata
        self._defaults = defaults
        self._clock = clock
        self._seeds = len(settings.cluster.bootstrap_servers)
        self._missing = {topic.name: topic for topic in settings.topics}
        self._causes: dict[str, str] = {}
        """The cause last logged for each missing topic."""
        self._may_be_possible = asyncio.Event()
        self._since = clock.monotonic()
        metadata.subscribe(self._changed)

    async def begin(self, tasks: Tasks, *, waits: bool) -> None:
        """A single node creates them before it is ready; a node of a cluster does not wait for the others."""
        if not waits or not await self.create():
            tasks.spawn(keep_going(self.run), "declared topics")

    async def run(self) -> None:
        """Return when every topic has existed once."""
        while not await self.create():
            self._may_be_possible.clear()
            try:
                async with asyncio.timeout(_AGAIN_SECONDS):
                    await self._may_be_possible.wait()
            except TimeoutError:
                continue

    async def create(self) -> bool:
        """Create what can be created now; returns whether every topic has existed once."""
        self._compare()
        ready = [topic for topic in self._missing.values() if self._has_brokers(topic)]
        if ready:
            new = tuple(_new_topic(topic) for topic in ready)
            try:
                command = CreateTopics(new, defaults=self._defaults)
                for outcome in await self._metadata.submit(command):
                    self._created(outcome)
            except KafkaError as error:
                for topic in ready:
                    self._note_refused(topic.name, error)
        return not self._missing

    def _changed(self, old: MetadataImage, new: MetadataImage, _records: Records) -> None:
        if self._missing and (old.brokers is not new.brokers or old.topics is not new.topics):
            self._may_be_possible.set()

    def _compare(self) -> None:
        """Drop topics that exist from the missing ones, and log how they differ from the settings."""
        image = self._metadata.image
        for name, declared in list(self._missing.items()):
            topic = image.topic(name)
            if topic is not None:
                del self._missing[name]
                if name in self._causes:
                    log.info("declared topic exists", topic=name)
                for difference in differences(declared, self._factor(declared), topic):
                    log.warning("topic differs from settings", topic=name, difference=difference)

    def _has_brokers(self, topic: TopicSettings) -> bool:
        image, factor = self._metadata.image, self._factor(topic)
        registered, live = len(image.brokers), len(image.live_brokers)
        if registered < factor:
            reason = f"{factor} replicas need as many brokers, and {registered} have come so far"
            self._log_missing(topic.name, "too few brokers", reason)
            return False
        expected = max(factor, self._seeds)
        waited = self._clock.monotonic() - self._since
        return live >= expected or (live > 0 and waited >= _COMPANY_SECONDS)

    def _factor(self, topic: TopicSettings) -> int:
        default = self._defaults.replication_factor
        return topic.replication_factor if topic.replication_factor > 0 else default

    def _created(self, outcome: CreatedTopic) -> None:
        if outcome.error is None:
            del self._missing[outcome.name]
            log.info("declared topic created", topic=outcome.name)
        elif outcome.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            self._note_refused(outcome.name, outcome.error)

    def _note_refused(self, name: str, error: KafkaError) -> None:
        if error.code in _WITHOUT_CONTROLLER:
            self._log_missing(name, "no controller", error.code.name)
        else:
            self._log_missing(name, "refused", error.message)

    def _log_missing(self, name: str, cause: str, reason: str) -> None:
        """Log each cause once, however often creation is tried."""
        if self._causes.get(name) != cause:
            self._causes[name] = cause
            log.warning("declared topic not created", topic=name, cause=cause, reason=reason)


def differences(declared: TopicSettings, factor: int, topic: TopicImage) -> Iterator[str]:
    """How a topic differs from its declaration, with the command that changes it where there is one."""
    count = len(topic.partitions)
    if declared.partitions > count:
        yield (
            f"it has {count} partitions and {declared.partitions} are declared; `millstream topic alter {topic.name}"
            f" --partitions {declared.partitions}` adds them, and keys may go to others then"
        )
    elif declared.partitions < count:
        yield f"it has {count} partitions and {declared.partitions} are declared; a topic never gets fewer"
    replicas = {len(p.replicas) - len(p.adding) for p in topic.partitions}
    if replicas != {factor}:
        has = " or ".join(map(str, sorted(replicas)))
        yield (
            f"it has {has} replicas and {factor} are declared; `millstream cluster reassign {topic.name}"
            " --replicas ...` gives it others"
        )
    for key, value in declared.configs.items():
        if topic.configs.get(key) != value:
            yield (
                f"{key} is {topic.configs.get(key, 'not set')} and {value} is declared;"
                f" `millstream topic alter {topic.name} --config {key}={value}` sets it"
            )


def _new_topic(topic: TopicSettings) -> NewTopic:
    return NewTopic(
        topic.name, topic.partitions, topic.replication_factor, configs=tuple(topic.configs.items())
    )
