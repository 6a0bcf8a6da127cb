"""FindCoordinator, versions 0 to 6: which node keeps a group or a share group's partition.

Not done: transactions. A client that looks for their coordinator gets a code that no client retries.
"""

import msgspec
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator

from millstream.broker.api.call import Call
from millstream.broker.cluster_view import ClusterView
from millstream.broker.coordinators.groups import Groups
from millstream.broker.coordinators.host import CoordinatorHost
from millstream.broker.handlers.admin import NoTransactions
from millstream.broker.server.listener import host_for
from millstream.cluster.metadata.service import MetadataService
from millstream.doors.cluster import CoordinatorKind
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_TOPIC_OF = {_GROUP: OFFSETS_TOPIC, _SHARE: SHARE_STATE_TOPIC}


class FindCoordinatorAnswer(msgspec.Struct, frozen=True):
    """With the fields of versions up to 3, which answer for only one key."""

    coordinators: tuple[Coordinator, ...]

    @property
    def error_code(self) -> ErrorCode:
        return self.coordinators[0].error_code if self.coordinators else ErrorCode.NONE

    @property
    def error_message(self) -> str | None:
        return self.coordinators[0].error_message if self.coordinators else None

    @property
    def node_id(self) -> int:
        return self.coordinators[0].node_id if self.coordinators else -1

    @property
    def host(self) -> str:
        return self.coordinators[0].host if self.coordinators else ""

    @property
    def port(self) -> int:
        return self.coordinators[0].port if self.coordinators else -1


class FindCoordinator:
    def __init__(
        self, metadata: MetadataService, view: ClusterView, groups: Groups, host: CoordinatorHost
    ) -> None:
        self._metadata = metadata
        self._view = view
        self._groups = groups
        self._host = host

    async def handle(self, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorAnswer:
        keys = dict.fromkeys(request.coordinator_keys)
        return FindCoordinatorAnswer(tuple([await self._find(request.key_type, key, call) for key in keys]))

    async def _find(self, key_type: int, key: str, call: Call) -> Coordinator:
        try:
            leader = await self._leader(key_type, key)
            endpoint = self._metadata.image.brokers[leader].endpoints[0]
        except KafkaError as error:
            return Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message
            )
        address, port = host_for(endpoint, call), endpoint.port
        if call.shown_coordinator is not None:
            leader, address, port = call.shown_coordinator
        return Coordinator(
            key=key, node_id=leader, host=address, port=port, error_code=ErrorCode.NONE, error_message=None
        )

    async def _leader(self, key_type: int, key: str) -> int:
        if key_type == _TRANSACTION:
            raise NoTransactions
        topic = _TOPIC_OF.get(key_type)
        if topic is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"key type {key_type} is none of 0, 1 and 2")
        if key_type == _SHARE and key.count(":") < 2:
            message = f"{key!r} is not of the form group:topic id:partition"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if key_type == _GROUP:
            index = await self._groups.find_partition(key)
        else:
            index = await self._host.of(CoordinatorKind.SHARE).find_partition(key)
        image = self._metadata.image.topics.get(topic)
        if image is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the topic {topic} does not exist")
        leader = image.partitions[index].leader
        if not self._view.may_coordinate(leader):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic}-{index} has no leader")
        return leader
