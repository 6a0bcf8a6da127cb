"""Permissions and quotas of callers."""

import enum
from typing import Protocol

import msgspec

from millstream.doors.caller import Caller


class Operation(enum.IntEnum):
    """Kafka's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Resource(enum.IntEnum):
    """Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Permission(msgspec.Struct, frozen=True):
    operation: Operation
    resource: Resource
    name: str = "kafka-cluster"


class QuotaKind(enum.Enum):
    """Kafka's names."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


class Authoriser(Protocol):
    def allows(self, caller: Caller, permission: Permission, /) -> bool: ...

    def check(self, caller: Caller, permission: Permission, /) -> None:
        """KafkaError with the resource's error code if it is not allowed."""
        ...


class Quotas(Protocol):
    def charge(self, caller: Caller, kind: QuotaKind, amount: float, /) -> float:
        """Count bytes, seconds or changes. Returns how many seconds the caller must wait before it may do more."""
        ...


class AllowAll:
    def allows(self, _caller: Caller, _permission: Permission, /) -> bool:
        return True

    def check(self, _caller: Caller, _permission: Permission, /) -> None:
        """Refuses nothing."""


class NoQuotas:
    def charge(self, _caller: Caller, _kind: QuotaKind, _amount: float, /) -> float:
        return 0.0
