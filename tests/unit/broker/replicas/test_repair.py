"""A damaged segment is fetched from others, who may be gone by the time that they are asked."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.broker.replicas import repair
from millstream.broker.replicas.repair import Repairs
from millstream.protocol.errors import ErrorCode, KafkaError
from support.replicated import Cluster


def test_a_replica_that_was_removed_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3)
    absent = cast(Any, None)

    async def fail_and_remove_the_next(_host: str, _port: int) -> Any:
        brokers = {key: each for key, each in cluster.image.brokers.items() if key != 3}
        cluster.image = cluster.image.__class__(brokers=brokers, topics=cluster.image.topics)
        raise OSError("no answer")

    monkeypatch.setattr(repair.ReplicaLink, "connect", fail_and_remove_the_next)
    repairs = Repairs(1, absent, cast(Any, cluster), *[absent] * 6)
    partition = SimpleNamespace(topic="t", index=0, leader_id=1)
    segment = SimpleNamespace(clear=lambda: None)
    with pytest.raises(KafkaError, match="broker 3 was removed") as failed:
        asyncio.run(repairs._fetch(cast(Any, partition), cast(Any, segment), 10))
    assert failed.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
