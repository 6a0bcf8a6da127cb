"""Fixtures for all tests. A test that needs a running node asks for `broker`, or for `start_node`."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.node import NodeProcess

# A shared machine is slow at times; what a test says about behaviour does not depend on that.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

_topic_numbers = itertools.count(1)

# Spark's short lives here are over before the second compiler, or threads that collect garbage, have paid off;
# they take the cores from the rest.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_LONGEST = ("pipeline", "spark", "examples")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is left with them when the others are done."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in _LONGEST)


# A node that lives as long as the test run would some time find the messages that tests date back to be too old.
WITHOUT_RETENTION = {"storage.retention_check_interval": "30d"}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all tests of a test process; use names of `new_topic` to stay apart from each other."""
    node = NodeProcess(tmp_path_factory.mktemp("broker"), settings=WITHOUT_RETENTION).start()
    try:
        yield node
        node.stop()
    finally:
        node.close()


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[Callable[..., NodeProcess]]:
    """Starts nodes of the test's own: `start_node("--log-level", "debug", settings={"http.port": "0"})`."""
    nodes: list[NodeProcess] = []

    def start(
        *arguments: str, environment: dict[str, str] | None = None, settings: dict[str, str] | None = None
    ) -> NodeProcess:
        directory = tmp_path / f"node-{len(nodes)}"
        directory.mkdir()
        node = NodeProcess(directory, arguments, environment, settings)
        nodes.append(node)
        return node.start()

    try:
        yield start
        for node in nodes:
            if node.process is not None:
                node.stop()
    finally:
        for node in nodes:
            node.close()


@pytest.fixture
def new_topic(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names that no other test uses."""
    stem = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:60]
    return lambda: f"{stem}-{os.getpid()}-{next(_topic_numbers)}"
