"""Which address clients are sent to."""

from confluent_kafka import Producer


def brokers_seen_from(bootstrap: str) -> list[str]:
    cluster = Producer({"bootstrap.servers": bootstrap}).list_topics(timeout=90)
    return [broker.host for broker in cluster.brokers.values()]


def test_a_node_that_listens_everywhere_tells_each_client_the_address_it_came_by(start_node):
    node = start_node("--listen", "0.0.0.0:0")
    port = node.bootstrap.rpartition(":")[2]
    assert brokers_seen_from(f"127.0.0.1:{port}") == ["127.0.0.1"]
    assert brokers_seen_from(f"127.0.0.2:{port}") == ["127.0.0.2"]


def test_an_advertised_name_is_told_to_everybody(start_node):
    node = start_node(settings={"broker.advertised_host": "localhost"})
    assert brokers_seen_from(node.bootstrap) == ["localhost"]
