"""The examples in the docstrings of the client, run as they stand against a node."""

import doctest
import inspect
from contextlib import suppress

import pytest

import millstream.client
from support.node import NodeProcess

_ADDRESS = "localhost:9092"
_FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL

_EXPLAINED = sorted(
    {
        each.__name__: each
        for name in millstream.client.__all__
        if inspect.isclass(each := getattr(millstream.client, name)) or inspect.isfunction(each)
    }.items()
)


@pytest.fixture(scope="module", autouse=True)
def events(broker: NodeProcess) -> None:
    """The topic of the examples: each of them may be the first, or the only one, that this node sees."""
    with millstream.client.Admin(broker.bootstrap) as admin, suppress(millstream.client.TopicExistsError):
        admin.create_topic("events")


@pytest.mark.parametrize(("name", "explained"), _EXPLAINED, ids=[name for name, _ in _EXPLAINED])
def test_example_of_a_public_name_runs(broker: NodeProcess, name: str, explained: object) -> None:
    text = inspect.getdoc(explained) or ""
    names = dict(vars(inspect.getmodule(explained)))
    example = doctest.DocTestParser().get_doctest(
        text.replace(_ADDRESS, broker.bootstrap), names, name, None, None
    )

    assert example.examples, f"{name} has no example"
    said: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=_FLAGS).run(example, out=said.append)
    assert failed == 0, "".join(said)
