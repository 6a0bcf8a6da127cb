"""Operations on a running cluster that return values: how it is, plans and moves, nodes that come and go, resets.

The command line, the console and HTTP are faces of it. Comes in: `client.Admin` or `client.wire.Cluster`, and values.
Must not come in: a terminal, the node's own code (`broker`).
"""
