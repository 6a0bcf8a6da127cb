"""That nobody is subscribed is said only where all who may know have answered."""

import asyncio
from types import SimpleNamespace

from millstream.mqtt.subscriptions import Subscription, SubscriptionIndex
from millstream.mqtt.unwanted import Unwanted
from millstream.protocol.errors import ErrorCode, KafkaError
from support.mqtt_coordinator import Coordinator


class Coordinators:
    """Two of them; in trouble, one of them does not answer."""

    def __init__(self, *, trouble=False):
        self.machines = [Coordinator(), Coordinator()]
        self.trouble = trouble
        self.asked = 0

    async def ask_all(self, _caller, _kind, request):
        self.asked += 1
        if self.trouble:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "one of them loads")
        return [machine.ask(request) for machine in self.machines]


def unwanted(coordinators, *topics, groups=(), filters=()):
    image = SimpleNamespace(group_configs=dict.fromkeys(groups))
    doors = SimpleNamespace(coordinators=coordinators, metadata=SimpleNamespace(image=image))
    index = SubscriptionIndex()
    for text in filters:
        index.add("client", Subscription(text))
    return asyncio.run(Unwanted(doors, None, "n1", index).among(topics))


def test_what_no_session_and_no_group_has_a_filter_for():
    coordinators = Coordinators()
    groups = "mqtt-share:g:shared/#", "mqtt-share:g:x:y/+", "another"
    topics = "a", "b", "shared/c", "x:y/z", "$queue/a"
    assert unwanted(coordinators, *topics, groups=groups, filters=["a"]) == {"b"}


def test_where_the_filter_of_a_group_begins_may_be_unclear():
    assert unwanted(Coordinators(), "x", "y", groups=["mqtt-share:a:b:x"]) == {"y"}
    assert unwanted(Coordinators(), "x", "y", groups=["mqtt-share:" + "a:" * 100]) == set()


def test_no_coordinator_is_asked_of_what_is_wanted_here():
    coordinators = Coordinators()
    assert unwanted(coordinators, "a", filters=["#"]) == set()
    assert coordinators.asked == 0


def test_nothing_is_certain_while_a_coordinator_does_not_answer():
    assert unwanted(Coordinators(), "a") == {"a"}
    assert unwanted(Coordinators(trouble=True), "a") == set()


def test_nothing_is_certain_before_there_are_coordinators():
    coordinators = Coordinators()
    coordinators.machines.clear()
    assert unwanted(coordinators, "a") == set()


def test_a_session_at_another_door_that_does_not_last_may_want_anything():
    coordinators = Coordinators()
    coordinators.machines[1].open("c", "n2", expiry_s=0)
    assert unwanted(coordinators, "a") == set()
