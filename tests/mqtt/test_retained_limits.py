"""What is retained is bounded, and its topic is the cluster's own."""

import confluent_kafka
import pytest

from millstream.protocol.mqtt.packets import Puback, Publish, Pubrec
from millstream.protocol.mqtt.reasons import Reason
from support.mqtt_client import RawMqtt
from support.node import NodeProcess
from support.waiting import wait_for


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    settings = {"mqtt.listen": "127.0.0.1:0", "mqtt.max_retained": "2", "mqtt.max_retained_size": "100"}
    node = NodeProcess(tmp_path_factory.mktemp("retained"), settings=settings).start()
    yield node
    node.stop()
    node.close()


def _publish(client: RawMqtt, topic: str, payload: bytes, qos: int = 1) -> int:
    client.send(Publish(topic, payload, qos, 1, retain=True))
    return client.expect(Puback if qos == 1 else Pubrec).reason


def test_a_topic_too_many_and_a_payload_too_large_are_refused(small):
    with RawMqtt(small) as client:
        client.connect("bounded")
        assert _publish(client, "a", b"x" * 101) == Reason.QUOTA_EXCEEDED
        assert _publish(client, "a", b"x" * 101, qos=2) == Reason.QUOTA_EXCEEDED
        assert _publish(client, "a", b"1") == _publish(client, "b", b"1") == Reason.SUCCESS
        # What is retained is counted when it is read back from the log.
        wait_for(
            lambda: (_publish(client, "c", b""), _publish(client, "c", b"1")),
            lambda reasons: reasons == (Reason.SUCCESS, Reason.QUOTA_EXCEEDED),
            "a third topic is refused",
        )
        assert _publish(client, "a", b"another") == Reason.SUCCESS


def test_clients_cannot_write_what_is_retained(small):
    failed = []
    producer = confluent_kafka.Producer({"bootstrap.servers": small.bootstrap})
    producer.produce("__mqtt_retained", b"x", key=b"a", on_delivery=lambda error, _: failed.append(error))
    producer.flush(60)
    assert failed[0].code() == confluent_kafka.KafkaError.TOPIC_EXCEPTION
