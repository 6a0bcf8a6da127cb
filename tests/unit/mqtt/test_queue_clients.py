"""Who is sent where: consumers of some queues to the leader."""

from typing import NamedTuple

from millstream.doors import Place
from millstream.mqtt.queue_clients import Redirects


class _Endpoint(NamedTuple):
    host: str


class _Node(NamedTuple):
    broker_id: int
    endpoints: tuple[_Endpoint, ...]


class _View:
    node_id = 1

    def __init__(self, *leaders: int | None) -> None:
        self._leaders = leaders

    def leader(self, place: Place) -> int | None:
        return self._leaders[place.partition]

    def brokers(self) -> list[_Node]:
        return [_Node(number, (_Endpoint(f"host-{number}"),)) for number in (1, 2)]


def _server(*leaders: int | None, servers=None, queue="jobs"):
    redirects = Redirects(_View(*leaders), frozenset({"jobs"}), servers or {})
    redirects.port = 1883
    return redirects.consumer([Place(queue, index) for index in range(len(leaders))])


def test_a_consumer_is_sent_to_the_leader_of_its_queue():
    assert _server(2) == "host-2:1883"
    assert _server(2, servers={2: "mqtt.example:8883"}) == "mqtt.example:8883"


def test_it_stays_where_the_queue_is_led_or_nobody_leads_it_or_all_are_served():
    assert _server(1) is _server(2, 1) is _server(None) is _server(2, queue="other") is None
