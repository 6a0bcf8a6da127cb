"""Connections between nodes, over a listener of their own.

`hello` has the greeting and the check of the caller. `link` is one connection, renewed when it breaks; `network` holds
all links and carries the quorum's messages and commands for the controller. `founding` decides how the first nodes form
a cluster, `founder` carries it out, `admission` lets later nodes into the quorum. `membership` joins, registers and
stops this node; its `heartbeats` renew the `lease`, within which no other node can have taken over, and `contact`
detects when one may have. `apis` handles other nodes' requests. May come in: cluster, the protocol's framing. Must not:
handlers of clients' requests.
"""
