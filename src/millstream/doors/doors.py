"""Everything that a door gets."""

import msgspec

from millstream.doors.access import Authoriser, Quotas
from millstream.doors.cluster import ClusterView, Coordinators, Metadata
from millstream.doors.messages import Messages
from millstream.doors.partitions import PartitionAccess
from millstream.doors.queues import Queues


class Doors(msgspec.Struct, frozen=True):
    partitions: PartitionAccess
    messages: Messages
    queues: Queues
    coordinators: Coordinators
    view: ClusterView
    metadata: Metadata
    authoriser: Authoriser
    quotas: Quotas
