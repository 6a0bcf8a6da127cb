"""Tools to test programs that use Millstream, and Millstream itself; shipped to users.

Stand-ins for the interfaces of `runtime`: a disk that fails and loses power on command (`disk`), and a clock that
stands still until the test moves it (`clock`). Both are deterministic: the same seed gives the same run. For programs
there are real brokers in their own processes (`EmbeddedBroker`, `EmbeddedCluster`), and a pytest plug-in that starts
them. `processes` starts nodes here, for `cluster up`, and in our own tests. Any part of the project may be imported
here; only tests and the command line may depend on this room.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.testing.broker import BrokerFailed, EmbeddedBroker, EmbeddedCluster
    from millstream.testing.processes import NodeFailed, NodeProcess

__all__ = ["BrokerFailed", "EmbeddedBroker", "EmbeddedCluster", "NodeFailed", "NodeProcess"]


def __getattr__(name: str) -> Any:
    """pytest imports this package in every run of its users: unused parts must cost nothing."""
    if name in __all__:
        from millstream.testing import broker, processes

        return getattr(broker, name, None) or getattr(processes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
