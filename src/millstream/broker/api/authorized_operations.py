"""The operations a client may perform, as the bit fields of describe calls; without an authorizer, all."""

from collections.abc import Iterable

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12

NOT_REQUESTED = -(2**31)


def _bits(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in operations)


CLUSTER_OPERATIONS = _bits(
    (_CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE)
)
TOPIC_OPERATIONS = _bits(
    (_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
)
GROUP_OPERATIONS = _bits((_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS))
