"""The raw members of the benchmarks do what a member does; nothing here looks at a time."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.groups.confluent import ConfluentMember
from bench.groups.connection import Connection, find_coordinator
from bench.groups.kip848 import Kip848Member
from bench.peers import Durability
from bench.peers.millstream import Millstream
from bench.scenarios import commits, rebalance


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Millstream]:
    directory: Path = tmp_path_factory.mktemp("bench-groups")
    peer = Millstream(directory, settings=rebalance._SETTINGS)
    try:
        peer.wait_ready()
        yield peer
    finally:
        peer.stop()


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_raw_members_share_all_partitions_before_and_after_one_is_lost(
    broker: Millstream, protocol: str
) -> None:
    topic = f"raw-{protocol}"
    broker.create_topic(topic, 80, Durability.RELAXED)
    asyncio.run(rebalance._measure(broker, protocol, topic, 40))


def test_raw_and_real_members_get_along_in_one_group(broker: Millstream) -> None:
    broker.create_topic("mixed", 8, Durability.RELAXED)

    async def share() -> None:
        connection = await Connection.open(broker.bootstrap)
        await find_coordinator(connection, "mixed")
        raw = Kip848Member(connection, "mixed", "raw", "mixed", 0.05)
        raw.start()
        real = ConfluentMember(broker.bootstrap, "mixed", "mixed", "consumer", 10_000)
        while not (
            len(raw.assigned) == 4 and raw.assigned.isdisjoint(mine := real.poll()) and len(mine) == 4
        ):
            raw.check()
            await asyncio.sleep(0.02)
        raw.vanish()
        connection.close()
        real.close()

    asyncio.run(asyncio.wait_for(share(), 90))


def test_commits_are_counted_only_when_stored(broker: Millstream) -> None:
    broker.create_topic("counted", 1, Durability.DURABLE)
    assert asyncio.run(commits._measure(broker.bootstrap, "counted", 2, 0.2)) > 0
