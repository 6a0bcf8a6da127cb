"""Settings of the broker that can change while it runs: limits of connections, and the cleaner's interval.

The setting for this broker counts first, then the one for all brokers, then the settings file.
"""

from millstream.broker.partitions.cleaner import Cleaner
from millstream.broker.server.server import Server
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.machine import Records
from millstream.cluster.metadata.service import MetadataService
from millstream.config.broker_table import BROKER_CONFIGS


class DynamicSettings:
    def __init__(self, defaults: Defaults, server: Server, cleaner: Cleaner, most_connections: int) -> None:
        """`most_connections` is the number that the limit of open files allows."""
        self._defaults = defaults
        self._server = server
        self._cleaner = cleaner
        self._most_connections = most_connections

    def follow(self, metadata: MetadataService) -> None:
        self._apply(metadata.image)
        metadata.subscribe(self._changed)

    def _changed(self, old: MetadataImage, new: MetadataImage, _records: Records) -> None:
        if old.broker_configs is not new.broker_configs:
            self._apply(new)

    def _apply(self, image: MetadataImage) -> None:
        configs = self._defaults.broker_configs(image)

        def value(name: str) -> int:
            return int(configs.get(name) or BROKER_CONFIGS[name].default or 0)

        self._server.max_connections = min(value("max.connections"), self._most_connections)
        self._server.max_connections_per_ip = value("max.connections.per.ip")
        self._cleaner.interval_ms = value("log.cleaner.backoff.ms")
