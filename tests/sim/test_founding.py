"""One cluster is founded, in whatever order the seeds start, and none where one is known already."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from millstream.config.settings import TopicSettings
from support.broken_rules import BROKEN_FOUNDING
from support.simulated_founding import LOOK_SECONDS, Founding

TOPICS = (TopicSettings("declared", 4, 3), TopicSettings("by-default", 2))


async def any_order(run: Founding, random: Random) -> None:
    """Starts in any order and spacing, with kills, losses of power and cuts meanwhile."""
    numbers = random.sample(sorted(run.nodes), len(run.nodes))
    spacing = random.choice((0.0, 0.3, 3.0, 12.0))
    for number in numbers:
        if not run.nodes[number].is_up:
            run.nodes[number].start()
        await asyncio.sleep(random.uniform(0.0, 2 * spacing))
        for _ in range(random.randint(0, 3)):
            victim = run.nodes[random.choice(numbers)]
            if victim.is_up:
                victim.crash(power_loss=random.random() < 0.5)
                await asyncio.sleep(random.uniform(0.0, 1.0))
                victim.start()
            await asyncio.sleep(random.uniform(0.0, 0.5))
    run.keep_up()
    await run.wait(run.all_serve)
    await run.wait(
        lambda: all(_topics(run, number) == {"declared": 3, "by-default": 3} for number in run.nodes)
    )
    assert len(run.founded) == 1
    assert not [fields for event, fields in run.events if event == "node did not start"]


def _topics(run: Founding, number: int) -> dict[str, int]:
    broker = run.nodes[number].serving
    assert broker is not None
    return {
        name: len(topic.partitions[0].replicas)
        for name, topic in broker.metadata.image.topics.items()
        if all(p.leader >= 0 for p in topic.partitions)
    }


@pytest.mark.parametrize("seed", range(12))
def test_any_order_and_spacing_of_starts_gives_the_cluster_and_its_topics(seed: int) -> None:
    run = Founding(seed, TOPICS)
    run.run(any_order(run, Random(seed)))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12, 212))
def test_any_order_and_spacing_of_starts_many_times(seed: int) -> None:
    run = Founding(seed, TOPICS)
    run.run(any_order(run, Random(seed)))


async def with_a_fourth(run: Founding) -> None:
    run.cluster.start()
    await run.wait(run.all_serve)
    run.cluster.add(Random(4)).start()
    await run.wait(run.all_serve)


async def all_seeds_lose_their_disks(run: Founding) -> None:
    """The fourth node alone knows of the cluster, and none of the seeds knows of the fourth."""
    await with_a_fourth(run)
    for number in (1, 2, 3):
        run.nodes[number].crash(power_loss=False)
    for number in (1, 2, 3):
        run.lose_disk(number)
    for _ in range(int(30 / LOOK_SECONDS)):
        await asyncio.sleep(LOOK_SECONDS)
        run.keep_up()


async def two_seeds_lose_their_disks(run: Founding) -> None:
    """The third seed is off, and so is the fourth node."""
    await with_a_fourth(run)
    for node in run.nodes.values():
        node.crash(power_loss=False)
    run.lose_disk(1)
    run.lose_disk(2)
    for _ in range(int(30 / LOOK_SECONDS)):
        await asyncio.sleep(LOOK_SECONDS)
        run.keep_up(1, 2)
    assert any("n3:9092" in fields["reason"] for event, fields in run.events if event == "waiting")


async def founder_loses_its_disk_at_once(run: Founding) -> None:
    """Nobody else has a word of what it founded, and the disk comes back later."""
    founder = run.nodes[1]
    old = None

    def lose() -> None:
        nonlocal old
        if old is None:
            old = run.lose_disk(1)

    run.on_founded = lose
    run.cluster.start()
    for _ in range(int(20 / LOOK_SECONDS)):
        await asyncio.sleep(LOOK_SECONDS)
        run.keep_up()
    assert old is not None
    founder.crash(power_loss=False)
    founder.machine.disk = old
    founder.start()
    await run.wait(run.all_serve)


FOUND_BY = {
    "caller_is_not_heard": all_seeds_lose_their_disks,
    "majority_founds": two_seeds_lose_their_disks,
    "promise_is_for_everybody": founder_loses_its_disk_at_once,
}


@pytest.mark.parametrize("story", FOUND_BY.values(), ids=FOUND_BY)
def test_a_second_cluster_is_not_founded(story: object) -> None:
    run = Founding(1)
    run.run(story(run))  # type: ignore[operator]
    assert len(run.founded) == 1


@pytest.mark.parametrize("rule", FOUND_BY)
def test_a_broken_rule_founds_a_second_cluster(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BROKEN_FOUNDING[rule](monkeypatch)
    run = Founding(1)
    with suppress(AssertionError, TimeoutError):
        run.run(FOUND_BY[rule](run))
    assert len(run.founded) > 1
