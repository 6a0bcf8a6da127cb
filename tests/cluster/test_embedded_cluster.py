"""The embedded cluster and its fixture, as users of the package have them."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millstream.testing import EmbeddedCluster, NodeFailed
from support.reading import read_topic


@pytest.mark.millstream(topics={"events": 2}, brokers=3)
def test_a_test_has_a_cluster_whose_brokers_can_crash_and_come_back(
    millstream_cluster: EmbeddedCluster,
) -> None:
    found = AdminClient({"bootstrap.servers": millstream_cluster.bootstrap_servers}).list_topics(timeout=90)
    assert sorted(found.brokers) == [1, 2, 3]
    assert {len(each.replicas) for each in found.topics["events"].partitions.values()} == {3}

    producer = Producer({"bootstrap.servers": millstream_cluster.bootstrap_servers, "acks": "all"})
    producer.produce("events", b"before", partition=0)
    assert producer.flush(90) == 0
    millstream_cluster.brokers[2].kill()
    producer.produce("events", b"without broker 2", partition=0)
    assert producer.flush(90) == 0
    millstream_cluster.brokers[2].start()

    messages = read_topic(millstream_cluster.brokers[2].bootstrap_servers, "events", 2)
    assert sorted(message.value for message in messages) == [b"before", b"without broker 2"]


def test_a_broker_that_ended_by_itself_is_told_when_the_cluster_is_closed() -> None:
    cluster = EmbeddedCluster(1).start()
    assert cluster.brokers[1].process is not None
    cluster.brokers[1].process.kill()
    cluster.brokers[1].process.wait()
    with pytest.raises(NodeFailed, match="broker 1 stopped with exit code -9"):
        cluster.close()
    assert not cluster.brokers[1].log_file.exists(), "what it had stored is gone all the same"
