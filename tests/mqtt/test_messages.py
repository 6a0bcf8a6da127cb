"""Messages through a real node: every QoS, both versions, retained, wills, and the log behind it."""

import confluent_kafka
import pytest

from millstream.protocol.mqtt.packets import (
    Disconnect,
    Filter,
    Puback,
    Publish,
    RetainHandling,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from millstream.protocol.mqtt.properties import PublishProperties
from millstream.protocol.mqtt.reasons import Reason
from support.waiting import wait_for


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_reaches_its_subscriber(client, new_topic, version, qos):
    topic = new_topic()
    reader, writer = client(version), client(version)
    reader.connect(f"reader-{topic}")
    reader.subscribe(f"{topic}/+")
    writer.connect(f"writer-{topic}")
    writer.publish(f"{topic}/a", b"x", qos)
    message = reader.receive()
    assert (message.topic, message.payload, message.qos, message.retain) == (f"{topic}/a", b"x", qos, False)


def test_order_is_kept_and_windows_are_no_limit_of_how_much(client, new_topic):
    topic = new_topic()
    reader, writer = client(), client()
    reader.connect(f"reader-{topic}")
    reader.subscribe(topic, qos=1)
    writer.connect(f"writer-{topic}")
    writer.send(*(Publish(topic, b"%d" % number, 1, number) for number in range(1, 301)))
    assert [writer.hear().packet_id for _ in range(300)] == list(range(1, 301))
    assert [int(reader.receive().payload) for _ in range(300)] == list(range(1, 301))


def test_overlapping_filters_are_one_copy(client, new_topic):
    topic = new_topic()
    both = client()
    both.connect(f"both-{topic}")
    both.subscribe(f"{topic}/#", f"{topic}/+", qos=1)
    both.publish(f"{topic}/a", b"1", 0)
    both.publish(f"{topic}/a", b"2", 0)
    assert [both.receive().payload for _ in range(2)] == [b"1", b"2"]


def test_what_is_retained_is_found_by_filter_and_gone_when_it_is_empty(client, new_topic):
    topic = new_topic()
    writer, reader = client(), client()
    writer.connect(f"writer-{topic}")
    for name, qos in (("a", 0), ("b", 1), ("c", 2), ("d", 1)):
        writer.publish(f"{topic}/{name}", name.encode(), qos, packet_id=9, retain=True)
    writer.publish(f"{topic}/d", b"", 1, retain=True)
    reader.connect(f"reader-{topic}")
    reader.subscribe(f"{topic}/+")
    found = {(each.topic[-1], each.payload, each.retain) for each in (reader.receive() for _ in range(3))}
    assert found == {("a", b"a", True), ("b", b"b", True), ("c", b"c", True)}
    again = Filter(f"{topic}/+", 0, retain_handling=RetainHandling.NEW_ONLY)
    reader.send(Subscribe(2, (again,)))
    assert reader.expect(Suback).reasons == (0,)
    assert reader.hears_nothing()


def test_properties_and_identifiers_travel(client, new_topic):
    topic = new_topic()
    both = client()
    both.connect(f"both-{topic}")
    both.subscribe(topic)
    sent = PublishProperties(
        (("a", "1"), ("a", "2"), ("mqtt.topic", "x")), 1, 60, "text/plain", "answer/to", b"\x00\xff"
    )
    both.publish(topic, b"x", 0, properties=sent)
    assert both.receive().properties == sent


def test_no_local_and_unsubscribe(client, new_topic):
    topic = new_topic()
    both = client()
    both.connect(f"both-{topic}")
    both.send(Subscribe(3, (Filter(f"{topic}/own", 1, no_local=True), Filter(f"{topic}/other", 1))))
    both.expect(Suback)
    both.publish(f"{topic}/own", b"", 0)
    both.publish(f"{topic}/other", b"", 0)
    assert both.receive().topic == f"{topic}/other"
    both.send(Unsubscribe(4, (f"{topic}/other", f"{topic}/never")))
    assert both.expect(Unsuback).reasons == (0, 0x11)
    both.publish(f"{topic}/other", b"", 0)
    assert both.hears_nothing()


@pytest.mark.parametrize(("reason", "sent"), [(None, True), (0, False), (4, True)])
def test_a_will_is_sent_unless_the_client_says_goodbye(client, new_topic, reason, sent):
    topic = new_topic()
    watcher, leaving = client(), client()
    watcher.connect(f"watcher-{topic}")
    watcher.subscribe(topic)
    leaving.connect(f"leaving-{topic}", will=Will(topic, b"gone", 1))
    if reason is not None:
        leaving.send(Disconnect(reason))
    leaving.close()
    if sent:
        assert watcher.receive().payload == b"gone"
    else:
        watcher.publish(topic, b"alone", 1)
        assert watcher.receive().payload == b"alone"


def test_the_newer_connection_of_a_client_takes_over(client, new_topic):
    topic = new_topic()
    old, new = client(), client()
    old.connect(topic, expiry_s=60)
    old.subscribe(topic)
    assert new.connect(topic, clean=False, expiry_s=60).session_present
    assert old.expect(Disconnect).reason == Reason.SESSION_TAKEN_OVER
    new.publish(topic, b"x", 1)
    assert new.receive().payload == b"x"


def test_an_offline_session_reads_on_where_it_stopped(client, new_topic):
    topic = new_topic()
    reader, writer = client(), client()
    reader.connect(f"reader-{topic}", clean=False, expiry_s=60)
    reader.subscribe(topic)
    writer.connect(f"writer-{topic}")
    writer.publish(topic, b"0", 1)
    assert reader.receive().payload == b"0"
    reader.close()
    for number in range(1, 41):
        writer.publish(topic, b"%d" % number, 1 + number % 2, packet_id=number)
    again = client()
    assert again.connect(f"reader-{topic}", clean=False, expiry_s=60).session_present
    assert sorted(int(again.receive().payload) for _ in range(40)) == list(range(1, 41))
    assert again.hears_nothing()


def test_messages_are_records_and_records_are_messages(client, node, new_topic):
    topic = new_topic()
    both = client()
    both.connect(f"both-{topic}")
    both.subscribe(f"rule/{topic}/+")
    both.publish(f"rule/{topic}/x", b"from mqtt", 1, properties=PublishProperties((("unit", "C"),)))
    assert both.receive().payload == b"from mqtt"
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["ruled"])
    record = wait_for(
        lambda: consumer.poll(1.0),
        lambda found: found is not None and found.key() == topic.encode(),
        "the record",
    )
    consumer.close()
    assert record.value() == b"from mqtt"
    headers = dict(record.headers())
    assert (headers["level"], headers["unit"], headers["mqtt.topic"]) == (
        b"x",
        b"C",
        f"rule/{topic}/x".encode(),
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
    producer.produce("mqtt", b"from kafka", key=f"rule/{topic}/y".encode())
    producer.flush()
    message = both.receive()
    assert (message.topic, message.payload, message.qos) == (f"rule/{topic}/y", b"from kafka", 1)


def test_a_node_tells_about_itself(client, new_topic):
    both = client()
    both.connect(f"both-{new_topic()}")
    both.subscribe("$SYS/broker/clients/+", qos=0)
    told = {message.topic: int(message.payload) for message in (both.receive() for _ in range(2))}
    assert told["$SYS/broker/clients/connected"] >= 1
    both.send(Publish("$SYS/broker/x", b"", 1, 1))
    assert both.find(Puback).reason == Reason.NOT_AUTHORIZED


def test_what_breaks_the_protocol_ends_the_connection_with_its_reason(client):
    broken = client()
    broken.connect("broken")
    broken._socket.sendall(bytes.fromhex("3001ff"))
    assert broken.expect(Disconnect).reason == Reason.MALFORMED_PACKET
    assert broken.hear() is None


def test_a_shared_subscription_gives_each_message_to_one_member(client, new_topic):
    topic = new_topic()
    members, writer = [client(), client(4)], client()
    for number, member in enumerate(members):
        member.connect(f"member-{number}-{topic}")
        member.subscribe(f"$share/{topic}/{topic}/+", qos=1)
    writer.connect(f"writer-{topic}")
    writer.subscribe(f"{topic}/+", qos=0)
    for number in range(20):
        writer.publish(f"{topic}/a", b"%d" % number, 1)
    assert [int(writer.receive().payload) for _ in range(20)] == list(range(20)), "its own copies are extra"
    heard = [[int(member.receive().payload) for _ in range(10)] for member in members]
    assert sorted(heard[0] + heard[1]) == list(range(20))
    assert all(member.hears_nothing() for member in members)


def test_what_a_lost_member_had_goes_to_another_and_waits_while_all_are_away(client, new_topic):
    topic = new_topic()
    share = f"$share/{topic}/{topic}"
    writer, first = client(), client()
    writer.connect(f"writer-{topic}")
    first.connect(f"first-{topic}")
    first.subscribe(share, qos=1)
    writer.publish(topic, b"moves", 1)
    assert first.expect(Publish).payload == b"moves"
    first.close()
    writer.publish(topic, b"waits", 1)
    second = client()
    second.connect(f"second-{topic}")
    second.subscribe(share, qos=1)
    assert {second.receive().payload for _ in range(2)} == {b"moves", b"waits"}
