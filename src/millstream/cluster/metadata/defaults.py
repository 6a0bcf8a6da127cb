"""Settings of the deciding node that apply to a command."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from millstream.cluster.metadata.commands import Decision, NewId
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.placement import VIRTUAL_NODES
from millstream.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.config.settings import Settings


class Defaults(msgspec.Struct, frozen=True):
    """`static_configs` are Kafka-named broker settings from file, environment and flags.

    The partition limits guard against a mistaken request; they are far above what a broker is meant to hold.
    """

    broker_id: int = -1
    partitions: int = 1
    replication_factor: int = 1
    static_configs: Mapping[str, str] = msgspec.field(default_factory=dict)
    max_partitions_per_request: int = 100_000
    max_partitions_at_once: int = 2500
    max_partitions: int = 1_000_000
    virtual_nodes: int = VIRTUAL_NODES

    @classmethod
    def of(cls, settings: "Settings") -> "Defaults":
        return cls(
            broker_id=settings.broker.id,
            partitions=settings.broker.default_partitions,
            replication_factor=settings.replication.default_replication_factor,
            static_configs=settings.broker_configs(),
            max_partitions=settings.cluster.max_partitions,
            max_partitions_per_request=settings.cluster.max_partitions_per_request,
            max_partitions_at_once=settings.cluster.max_partitions_at_once,
            virtual_nodes=settings.replication.virtual_nodes,
        )

    def broker_configs(self, image: MetadataImage) -> dict[str, str]:
        """The broker's settings that topics inherit from: static ones under the dynamic ones."""
        return {**self.static_configs, **image.broker_overrides(self.broker_id)}

    def check_room(self, image: MetadataImage, pending: int, count: int, earlier: int = 0) -> None:
        """Raise POLICY_VIOLATION when `count` partitions of a topic are too many after `pending` of the same request.

        `earlier` partitions of that request are in the image already.
        """
        if count > self.max_partitions_at_once:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Too many partitions: a topic gets at most {self.max_partitions_at_once} at once"
                " (cluster.max_partitions_at_once); add more by further requests.",
            )
        if earlier + pending + count > self.max_partitions_per_request:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Too many partitions: one request may create at most {self.max_partitions_per_request}.",
            )
        if image.partition_count + pending + count > self.max_partitions:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Too many partitions: {self.max_partitions} are allowed, {image.partition_count} exist.",
            )


class ViewVirtualNodes(msgspec.Struct, frozen=True):
    """Asks the controller for the number of virtual nodes per broker that it places with; changes nothing."""

    defaults: Defaults = msgspec.field(default_factory=Defaults)

    def decide(self, _image: MetadataImage, _new_id: NewId, /) -> Decision[int]:
        return Decision((), self.defaults.virtual_nodes)
