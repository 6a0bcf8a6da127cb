from concurrent.futures import ThreadPoolExecutor

from millstream.client import HashPartitioner, RoundRobinPartitioner


def test_round_robin_takes_each_partition_in_turn_by_topic() -> None:
    partitioner = RoundRobinPartitioner()

    first = [partitioner.partition("a", b"same", None, 3) for _ in range(4)]
    second = [partitioner.partition("b", None, None, 2) for _ in range(3)]

    assert (first, second) == ([0, 1, 2, 0], [0, 1, 0])


def test_round_robin_is_fair_between_threads() -> None:
    partitioner = RoundRobinPartitioner()
    with ThreadPoolExecutor(4) as threads:
        chosen = list(threads.map(lambda _: partitioner.partition("a", None, None, 4), range(400)))

    assert [chosen.count(partition) for partition in range(4)] == [100] * 4


def test_hash_spreads_messages_without_a_key() -> None:
    chosen = {HashPartitioner().partition("a", None, None, 4) for _ in range(200)}

    assert chosen == {0, 1, 2, 3}
