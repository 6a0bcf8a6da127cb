"""Commands for `Metadata`, requests for `Coordinators`, and the ring of placement `ring`: pure values.

Not part of `cluster`, so that a node without doors does not import the requests of groups.
"""

from millstream.cluster.metadata.configs import (
    AlterationOutcome,
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
)
from millstream.cluster.metadata.defaults import ViewVirtualNodes
from millstream.cluster.metadata.names import invalid_name_reason
from millstream.cluster.metadata.partitions import CreatePartitions, IncreaseOutcome, PartitionIncrease
from millstream.cluster.metadata.reassignments import AlterReassignments, Reassignment, ReassignmentOutcome
from millstream.cluster.metadata.records import ConfigResource
from millstream.cluster.metadata.topics import DeletedTopic, DeleteTopics, TopicRef
from millstream.cluster.placement import HashRing
from millstream.coordinator.groups.requests import DeleteGroup, DescribeGroup, ListGroups

__all__ = [
    "AlterConfigs",
    "AlterReassignments",
    "AlterationOutcome",
    "ConfigAlteration",
    "ConfigChange",
    "ConfigOperation",
    "ConfigResource",
    "CreatePartitions",
    "DeleteGroup",
    "DeleteTopics",
    "DeletedTopic",
    "DescribeGroup",
    "HashRing",
    "IncreaseOutcome",
    "ListGroups",
    "PartitionIncrease",
    "Reassignment",
    "ReassignmentOutcome",
    "TopicRef",
    "ViewVirtualNodes",
    "invalid_name_reason",
]
