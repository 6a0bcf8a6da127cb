"""Queues over MQTT: every message to one consumer of a group, until it is settled."""

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.protocol.mqtt.packets import Filter, Puback, Publish, Suback, Subscribe
from millstream.protocol.mqtt.properties import PublishProperties, SubscribeProperties
from support.waiting import wait_for


def consume(client, queue, group, *, packet=False, qos=1):
    users = (("consumer-group", group), *((("ack-mode", "packet"),) if packet else ()))
    client.send(Subscribe(5, (Filter(queue, qos),), SubscribeProperties(users)))
    return client.find(Suback).reasons


def told(message):
    return dict(message.properties.user_properties)


def settle(client, queue, message, how, packet_id=50):
    names = ("message-id", "group-id")
    users = tuple((name, told(message)[name]) for name in names)
    client.send(
        Publish(
            f"{queue}/{how}", b"", 1, packet_id, properties=PublishProperties((*users, ("reason", "bad")))
        )
    )
    return client.find(Puback).reason


def test_what_is_enqueued_before_anyone_consumes_is_there_and_settled_once(client, new_topic):
    queue = f"$queue/{new_topic()}"
    writer, reader = client(), client()
    writer.connect(f"w{queue}")
    for number in range(5):
        writer.publish(f"{queue}/k", b"%d" % number, 1)
    reader.connect(f"r{queue}")
    assert consume(reader, queue, "g") == (1,)
    messages = [reader.receive() for _ in range(5)]
    assert [int(each.payload) for each in messages] == list(range(5))
    assert messages[0].topic == f"{queue}/k"
    assert told(messages[0])["group-id"] == "g"
    for message in messages:
        assert settle(reader, queue, message, "$ack") == 0
    other = client()
    other.connect(f"o{queue}")
    consume(other, queue, "g")
    assert other.hears_nothing()


def test_what_is_not_acknowledged_comes_again_and_what_is_rejected_does_not(client, new_topic):
    queue = f"$queue/{new_topic()}"
    both = client()
    both.connect(f"b{queue}")
    consume(both, queue, "g")
    both.publish(queue, b"x", 1)
    first = both.receive()
    assert settle(both, queue, first, "$nack") == 0
    second = both.receive()
    assert (second.payload, told(second)["delivery-count"]) == (b"x", "2")
    assert settle(both, queue, second, "$reject") == 0
    assert both.hears_nothing()


def test_what_is_rejected_and_what_is_too_old_are_dead_letters(node, client, new_topic):
    name, letters, group = new_topic(), f"dlq.{new_topic()}", new_topic()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    made = admin.create_topics(
        [
            NewTopic(name, 1, 1, config={"queue.ttl.ms": "3600000"}),
            NewTopic(letters, 1, 1, config={"errors.deadletterqueue.group.enable": "true"}),
        ]
    )
    for each in made.values():
        each.result()
    configs = {"errors.deadletterqueue.topic.name": letters}
    answer = httpx.patch(f"http://{node.http}/admin/queues/{group}/configs", json=configs, timeout=60)
    assert answer.is_success, answer.text
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce(name, b"old", timestamp=1_000)
    assert producer.flush(60) == 0
    reader = client()
    reader.connect(f"r{name}")
    reader.publish(f"$queue/{name}", b"new", 1)
    consume(reader, f"$queue/{name}", group)
    message = reader.receive()
    assert message.payload == b"new"
    assert settle(reader, f"$queue/{name}", message, "$reject") == 0
    consume(reader, f"$queue/{letters}", "letters")
    both = {each.payload: told(each)["__dlq.errors.message"] for each in (reader.receive(), reader.receive())}
    assert both == {b"old": "expired", b"new": "bad"}


def test_a_group_shares_a_queue_and_groups_have_it_each(client, new_topic):
    queue = f"$queue/{new_topic()}"
    one, two, other = client(), client(), client()
    for number, (reader, group) in enumerate(((one, "g"), (two, "g"), (other, "h"))):
        reader.connect(f"r{number}{queue}")
        consume(reader, queue, group, packet=True)
    other.publish(queue, b"x", 1)
    assert other.receive().payload == b"x"
    heard = wait_for(
        lambda: [reader for reader in (one, two) if not reader.hears_nothing(0.2)], bool, "one of them has it"
    )
    assert len(heard) == 1
    assert all(reader in heard or reader.hears_nothing() for reader in (one, two))


def test_a_lost_consumers_messages_go_to_another(client, new_topic):
    queue = f"$queue/{new_topic()}"
    lost, other = client(), client()
    lost.connect(f"l{queue}")
    consume(lost, queue, "g")
    lost.publish(queue, b"x", 1)
    assert lost.expect(Publish).payload == b"x"
    lost.close()
    other.connect(f"o{queue}")
    consume(other, queue, "g")
    assert other.receive().payload == b"x"


def test_a_client_of_3_settles_by_its_acknowledgement_and_cannot_by_qos_0(client, new_topic):
    queue = f"$queue/{new_topic()}"
    old = client(4)
    old.connect(f"c{queue}")
    old.send(Subscribe(5, (Filter(queue, 0),)))
    assert old.find(Suback).reasons == (0x80,)
    old.subscribe(queue, qos=1)
    old.publish(queue, b"x", 1)
    assert old.receive().payload == b"x"
    old.close()
    again = client(4)
    again.connect(f"c{queue}")
    again.subscribe(queue, qos=1)
    assert again.hears_nothing(1.0)


@pytest.mark.parametrize("name", ["__consumer_offsets", "", "a b"])
def test_names_that_no_queue_can_have_are_refused(client, new_topic, name):
    bad = client()
    bad.connect(f"bad-{new_topic()}")
    bad.send(Publish(f"$queue/{name}", b"", 1, 1))
    assert bad.expect(Puback).reason >= 0x80


def test_what_is_said_of_a_message_settles_none_of_a_queue_that_was_made_again(client, new_topic, node):
    queue = f"$queue/{(topic := new_topic())}"
    both = client()
    both.connect(f"b{queue}")
    assert consume(both, queue, "g") == (1,)
    both.publish(queue, b"old", 1)
    old = both.receive()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    both.publish(queue, b"new", 1, 51)
    new = both.receive()
    while new.payload == b"old":
        new = both.receive()
    assert told(new)["offset"] == told(old)["offset"]
    assert settle(both, queue, old, "$ack", 52) == 0x83
    assert settle(both, queue, new, "$ack", 53) == 0
