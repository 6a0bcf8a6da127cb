"""Operations on a running cluster that return values: its state, plans and moves, adding and removing nodes, resets.

The command line, the console and HTTP only present them. Comes in: `client.Admin` or `client.wire.Cluster`, and values.
Must not come in: a terminal, the node's own code (`broker`).
"""
