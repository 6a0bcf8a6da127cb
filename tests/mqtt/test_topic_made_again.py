"""The topic behind MQTT is deleted and made again: its subscribers get what is in the new one, from the first on."""

from confluent_kafka.admin import AdminClient, NewTopic

from support.mqtt_client import RawMqtt
from support.node import NodeProcess

TOPIC = "mqtt"
AWAY = {"away": "t/+", "away-member": "$share/h/t/+"}


def make_again(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_topics([TOPIC])[TOPIC].result(60)
    admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(60)


def test_subscribers_of_all_kinds_get_what_is_in_the_new_topic(tmp_path):
    node = NodeProcess(tmp_path, settings={"mqtt.listen": "127.0.0.1:0"}).start()
    try:
        with RawMqtt(node) as writer, RawMqtt(node) as connected, RawMqtt(node) as member:
            writer.connect("writer")
            for each, filters in ((connected, "t/+"), (member, "$share/g/t/+")):
                each.connect(filters.replace("/", "-"))
                each.subscribe(filters, qos=1)
            for name, filters in AWAY.items():
                with RawMqtt(node) as away:
                    away.connect(name, expiry_s=3600)
                    away.subscribe(filters, qos=1)
            for text in (b"a", b"b", b"c"):
                writer.publish("t/1", text)
            for each in (connected, member):
                assert [each.receive().payload for _ in range(3)] == [b"a", b"b", b"c"]
            make_again(node)
            for text in (b"d", b"e"):
                writer.publish("t/1", text)
            for each in (connected, member):
                assert [each.receive().payload for _ in range(2)] == [b"d", b"e"]
            for name in AWAY:
                with RawMqtt(node) as back:
                    back.connect(name, clean=False, expiry_s=3600)
                    assert [back.receive().payload for _ in range(2)] == [b"d", b"e"]
        node.stop()
    finally:
        node.close()
