"""Fixtures for all tests. A test that needs a running node asks for `broker`, or for `start_node`."""

import gc
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from millstream.testing.leftovers import end_with_this_process
from support.environment import make_usual
from support.node import NodeProcess

make_usual()
end_with_this_process()

# A shared machine is slow at times; what a test says about behaviour does not depend on that.
settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples each time: who changes one thing is not told of another. `make long` draws others.
settings.register_profile("fixed", settings.get_profile("fresh"), derandomize=True)
settings.load_profile("fixed")

_topic_numbers = itertools.count(1)

# Spark's short lives here are over before the second compiler, or threads that collect garbage, have paid off;
# they take the cores from the rest.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Directories of what takes longest, of what computes for seconds at a time, and of what is soon done.
_LONGEST, _COMPUTING, _SHORTEST = ("pipeline", "spark", "examples"), ("sim",), ("fuzz", "unit")
# Groups that take minutes in one worker, the longest first: none may wait behind another.
_FIRST = ("spark", "job")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is left with them when the others are done.

    What computes is spread among what mostly waits, so that no core has to.
    """
    here = Path(__file__).parent
    kinds = {item: item.path.relative_to(here).parts[0] for item in items}
    lines = {
        item: (1 - (kind in _LONGEST) + (kind in _SHORTEST), kind in _COMPUTING)
        for item, kind in kinds.items()
    }
    lengths, counts = Counter(lines.values()), Counter[tuple[int, bool]]()
    places = {}
    for item, line in lines.items():
        counts[line] += 1
        group = item.get_closest_marker("xdist_group")
        first = _FIRST.index(group.args[0]) - len(_FIRST) if group and group.args[0] in _FIRST else 0
        places[item] = first, line[0], counts[line] / lengths[line]
    items.sort(key=places.__getitem__)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that share a fixture of their module run in one worker, or each worker would make one for itself."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker("xdist_group") is not None:
        return
    fixtures = item._fixtureinfo.name2fixturedefs
    shared = [name for name, made in fixtures.items() if made[-1].scope == "module"]
    if shared:
        values = item.callspec.params if hasattr(item, "callspec") else {}
        which = [str(values[name]) for name in shared if name in values]
        item.add_marker(pytest.mark.xdist_group("-".join([item.path.stem, *which])))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """What a worker leaves is collected while it has time: five seconds after its last word it is interrupted."""
    gc.collect()
    gc.freeze()


# A node that lives as long as the test run would some time find the messages that tests date back to be too old. And
# no group waits three seconds for company.
SHARED = {"storage.retention_check_interval": "30d", "kafka.group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all tests of a test process; use names of `new_topic` to stay apart from each other."""
    node = NodeProcess(tmp_path_factory.mktemp("broker"), settings=SHARED).start()
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
