"""There are no transactions: a transactional client is told so at once, and does not look for a coordinator forever."""

import asyncio

import confluent_kafka
import pytest
from aiokafka.errors import TransactionalIdAuthorizationFailed
from kafka.errors import TransactionalIdAuthorizationFailedError

from millstream.protocol.errors import ErrorCode
from support.clients.kinds import Clients
from support.clients.message import PATIENCE_S


def test_confluent_kafka_fails_with_the_reason(clients: Clients) -> None:
    producer = clients.confluent.producer(transactional_id="tx")
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.init_transactions(PATIENCE_S)
    error = refused.value.args[0]
    assert (error.code(), error.fatal()) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, True)
    assert "this cluster has no transactions" in error.str()


def test_kafka_python_fails(clients: Clients) -> None:
    producer = clients.kafka_python.producer(transactional_id="tx", max_block_ms=int(PATIENCE_S * 1000))
    try:
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close(PATIENCE_S)


def test_aiokafka_fails(clients: Clients) -> None:
    async def start() -> None:
        producer = clients.aiokafka.producer(transactional_id="tx")
        try:
            async with asyncio.timeout(PATIENCE_S):
                await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(TransactionalIdAuthorizationFailed):
        asyncio.run(start())
