"""The pytest plug-in: `millstream_broker`, `millstream_cluster` and `millstream_broker_factory`.

pytest loads it wherever Millstream is installed, so it imports nothing until a test asks for a broker.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from millstream.testing.broker import EmbeddedBroker, EmbeddedCluster, Topics

_MARKER = (
    "millstream(topics=None, settings=None, scope=None, brokers=3): topics and settings of the broker that the fixture "
    'millstream_broker starts, and whether the test has it for itself ("function") or shares it ("session"); '
    "millstream_cluster starts so many brokers"
)
_SCOPES = ("function", "session")


class BrokerFactory:
    """Starts brokers, and stops them at the end of the test session: `millstream_broker_factory(topics={"events":
    3})`.
    """

    def __init__(self) -> None:
        self._brokers: list[EmbeddedBroker | EmbeddedCluster] = []
        self._shared: dict[str, EmbeddedBroker] = {}

    def __call__(
        self, *, topics: "Topics" = (), settings: Mapping[str, object] | None = None
    ) -> "EmbeddedBroker":
        from millstream.testing.broker import EmbeddedBroker

        broker = EmbeddedBroker(topics=topics, settings=settings)
        self._brokers.append(broker)
        return broker.__enter__()

    def shared(self, *, topics: "Topics", settings: Mapping[str, object] | None) -> "EmbeddedBroker":
        """One broker for all tests with these settings; missing topics are created."""
        key = repr(sorted((settings or {}).items()))
        broker = self._shared.get(key)
        if broker is None or not broker.is_running:
            broker = self._shared[key] = self(topics=topics, settings=settings)
        elif topics:
            broker.create_topics(topics)
        return broker

    def cluster(
        self, count: int = 3, *, topics: "Topics" = (), settings: Mapping[str, object] | None = None
    ) -> "EmbeddedCluster":
        """The same for a cluster of so many brokers."""
        from millstream.testing.broker import EmbeddedCluster

        cluster = EmbeddedCluster(count, topics=topics, settings=settings)
        self._brokers.append(cluster)
        return cluster.__enter__()

    def end(self, broker: "EmbeddedBroker | EmbeddedCluster") -> None:
        self._brokers.remove(broker)
        broker.close()

    def close(self) -> None:
        with ExitStack() as closing:
            for broker in self._brokers:
                closing.callback(broker.close)
            self._brokers.clear()

    def log_tails(self) -> list[str]:
        return [tail for tail in (broker.log_tail() for broker in self._brokers) if tail]


_factory_key = pytest.StashKey[BrokerFactory]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "millstream_scope",
        "function: every test has a millstream_broker of its own; session: tests share one for each set of settings",
        default="function",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture(scope="session")
def millstream_broker_factory(request: pytest.FixtureRequest) -> Iterator[BrokerFactory]:
    """Starts brokers that run until the end of the session, or until their `close`; for fixtures of wider scope."""
    factory = request.config.stash[_factory_key] = BrokerFactory()
    yield factory
    factory.close()


@pytest.fixture
def millstream_broker(
    request: pytest.FixtureRequest, millstream_broker_factory: BrokerFactory
) -> Iterator["EmbeddedBroker"]:
    """A running broker. `millstream_broker.bootstrap_servers` is what a Kafka client needs."""
    options = _options(request)
    options.pop("brokers")
    scope = options.pop("scope", None) or request.config.getini("millstream_scope")
    if scope not in _SCOPES:
        raise pytest.UsageError(f"millstream: the scope is {scope!r}; choose one of {', '.join(_SCOPES)}")
    if scope == "session":
        yield millstream_broker_factory.shared(**options)
        return
    broker = millstream_broker_factory(**options)
    yield broker
    millstream_broker_factory.end(broker)


@pytest.fixture
def millstream_cluster(
    request: pytest.FixtureRequest, millstream_broker_factory: BrokerFactory
) -> Iterator["EmbeddedCluster"]:
    """A running cluster of three brokers, or as many as the marker says; every test has its own."""
    options = _options(request)
    options.pop("scope")
    cluster = millstream_broker_factory.cluster(options.pop("brokers") or 3, **options)
    yield cluster
    millstream_broker_factory.end(cluster)


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The markers' arguments; a test's own marker adds to those of its class and module."""
    topics: dict[str, object] = {}
    settings: dict[str, object] = {}
    scope = brokers = None
    for marker in reversed(list(request.node.iter_markers("millstream"))):
        unknown = set(marker.kwargs) - {"topics", "settings", "scope", "brokers"}
        if unknown or marker.args:
            raise pytest.UsageError(
                "the marker millstream takes topics=, settings=, scope= and brokers= only"
            )
        given = marker.kwargs.get("topics") or {}
        topics.update(given if isinstance(given, Mapping) else dict.fromkeys(given, 1))
        settings.update(marker.kwargs.get("settings") or {})
        scope = marker.kwargs.get("scope") or scope
        brokers = marker.kwargs.get("brokers") or brokers
    return {"topics": topics, "settings": settings, "scope": scope, "brokers": brokers}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Show the brokers' logs with a test that failed."""
    report: pytest.TestReport = yield
    factory = item.config.stash.get(_factory_key, None)
    if (
        factory is not None
        and report.failed
        and "millstream_broker_factory" in getattr(item, "fixturenames", ())
    ):
        for tail in factory.log_tails():
            report.sections.append(("millstream broker log", tail))
    return report
