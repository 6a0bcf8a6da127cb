"""Tools to test programs that use Millstream, and Millstream itself; shipped to users.

Here live stand-ins for what `runtime` is the door to: a disk that fails and loses power on command (`disk`), a
clock that stands still until it is moved (`clock`). Everything is deterministic: the same seed gives the same run.
For programs there are real brokers in processes of their own (`EmbeddedBroker`, `EmbeddedCluster`), and a pytest
plug-in that starts them. `processes` is how nodes are started here, by `cluster up`, and in our own tests.
Any part of the project may come in; nothing but tests and the command line may depend on this room.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.testing.broker import BrokerFailed, EmbeddedBroker, EmbeddedCluster
    from millstream.testing.processes import NodeFailed, NodeProcess

__all__ = ["BrokerFailed", "EmbeddedBroker", "EmbeddedCluster", "NodeFailed", "NodeProcess"]


def __getattr__(name: str) -> Any:
    """pytest imports this package in every run of its users: what they do not use must not cost them."""
    if name in __all__:
        from millstream.testing import broker, processes

        return getattr(broker, name, None) or getattr(processes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
