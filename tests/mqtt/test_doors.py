"""MQTT beside the other doors: a gateway that serves it, and one queue that three kinds of consumers work off."""

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.client import QueueAdmin
from millstream.protocol.mqtt.packets import Filter, Puback, Publish, Suback, Subscribe
from millstream.protocol.mqtt.properties import SubscribeProperties
from millstream.protocol.mqtt.reasons import Reason
from support.gateway import GatewayAlone
from support.mqtt_client import RawMqtt
from support.sse import Events
from support.waiting import wait_for

_ACCEPT = 1


class _GatewayWithMqtt(GatewayAlone):
    def log_entries(self, name):
        return self.events(name)


@pytest.fixture
def gateway(node, tmp_path) -> Iterator[_GatewayWithMqtt]:
    variables = {"MILLSTREAM_MQTT_LISTEN": "127.0.0.1:0"}
    with _GatewayWithMqtt(tmp_path / "gateway", node.bootstrap, variables) as gateway:
        wait_for(lambda: gateway.events("listening for MQTT clients"), bool, "the gateway serves MQTT")
        yield gateway


def test_one_queue_for_consumers_of_mqtt_http_and_kafka(node, gateway, new_topic):
    queue, group = new_topic(), "workers"
    with RawMqtt(gateway) as writer:
        writer.connect("writer")
        writer.publish(f"$queue/{queue}", b"one")
        with RawMqtt(gateway) as worker:
            worker.connect("worker")
            users = (("consumer-group", group), ("ack-mode", "packet"))
            worker.send(Subscribe(1, (Filter(f"$queue/{queue}", 1),), SubscribeProperties(users)))
            assert worker.expect(Suback).reasons == (1,)
            assert worker.receive().payload == b"one"
            _wait_until_settled(node, group)
        writer.publish(f"$queue/{queue}", b"two")
        with Events(gateway.client, topic=queue, group=group) as events:
            delivered = events.next()
            assert delivered["payload"] == "two"
            query = {"topic": queue, "partition": delivered["partition"], "group": group}
            assert gateway.client.post("/ack", params=query, json={"id": delivered["id"]}).is_success
        writer.publish(f"$queue/{queue}", b"three")
        settings = {"bootstrap.servers": node.bootstrap, "group.id": group}
        consumer = ShareConsumer({**settings, "share.acknowledgement.mode": "explicit"})
        consumer.subscribe([queue])
        (record,) = wait_for(lambda: consumer.poll(1.0), bool, "the record")
        assert record.value() == b"three"
        consumer.acknowledge(record, _ACCEPT)
        consumer.commit_sync(timeout=60)
        consumer.close()
    _wait_until_settled(node, group)


def _wait_until_settled(node, group) -> None:
    with QueueAdmin(node.bootstrap) as admin:
        wait_for(
            lambda: [row.depth for row in admin.queues(group)], lambda depths: not any(depths), "the end"
        )


def test_what_comes_over_http_reaches_subscribers_and_a_full_queue_refuses(node, gateway, new_topic):
    topic, full = new_topic(), new_topic()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    (created,) = admin.create_topics([NewTopic(full, 1, 1, config={"queue.max.depth": "2"})]).values()
    created.result()
    with RawMqtt(gateway) as client, httpx.Client(base_url=f"http://{node.http}", timeout=90) as http:
        client.connect("both")
        client.subscribe(f"plant/{topic}/#", qos=1)
        query = {"topic": "mqtt", "key": f"plant/{topic}/temp"}
        assert http.post("/produce", params=query, json={"payload": "21.5"}).is_success
        message = client.receive()
        assert (message.topic, message.payload) == (f"plant/{topic}/temp", b"21.5")
        answers = []
        for number in range(1, 4):
            client.send(Publish(f"$queue/{full}", b"x", 1, number))
            answers.append(client.expect(Puback).reason)
        assert answers == [0, 0, Reason.QUOTA_EXCEEDED]


def test_a_session_goes_on_from_a_gateway_to_a_node_and_back(node, gateway, new_topic):
    topic = new_topic()
    with RawMqtt(gateway) as reader:
        reader.connect(f"reader-{topic}", clean=False, expiry_s=600)
        reader.subscribe(topic)
    for number, place in enumerate((node, gateway)):
        with RawMqtt(node) as writer:
            writer.connect(f"writer-{topic}")
            writer.publish(topic, b"%d" % number, 2)
        with RawMqtt(place) as reader:
            assert reader.connect(f"reader-{topic}", clean=False, expiry_s=600).session_present
            assert reader.receive().payload == b"%d" % number
