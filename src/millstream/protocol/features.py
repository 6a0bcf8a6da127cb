"""The features that ApiVersions tells of from version 3 on: Kafka's names, and the levels of Kafka 4.3 that are served.

A feature has one level here, which is neither raised nor lowered. What is not there has no level: transactions
(`transaction.version`) and streams groups (`streams.version`).
"""

from millstream.protocol.wire import I16, I64, array_length, string, uvarint

FEATURES = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "kraft.version": 1,
    # Which is 4.3-IV0.
    "metadata.version": 30,
    "share.version": 1,
}
# One more with each change above: clients keep what they heard with the highest.
FEATURES_EPOCH = 1

_SUPPORTED, _EPOCH, _FINALIZED = 0, 1, 2


def encode_features() -> bytes:
    """The tagged fields of the reply. Supported are lowest and highest level, finalized highest and lowest."""
    levels = b"".join(
        string(name, flexible=True) + I16.pack(level) * 2 + b"\0" for name, level in FEATURES.items()
    )
    features = array_length(len(FEATURES), flexible=True) + levels
    fields = ((_SUPPORTED, features), (_EPOCH, I64.pack(FEATURES_EPOCH)), (_FINALIZED, features))
    return uvarint(len(fields)) + b"".join(
        uvarint(tag) + uvarint(len(field)) + field for tag, field in fields
    )
