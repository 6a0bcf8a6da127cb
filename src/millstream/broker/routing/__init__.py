"""Lets any node answer for all: requests for partitions and groups of other nodes are forwarded to these.

For doors, by value: `partitions`, `coordinators` and `queues` call this node or another; `routes` finds the node and
decides which calls may be repeated; `calls` defines calls between nodes, `call_link` and `served_calls` are their two
ends. `here` serves partitions that this node leads; `batcher` and `follow` are shared by all doors; `metadata` is the
doors' view of the cluster. `node_doors` and `gateway_doors` connect these, for a node and for a process that is none.

For Kafka clients, by request: `relay` forwards one client's requests and decides by API who answers; `lane` is a
connection for that client to another node, `local_lane` stands for one to this node; `produce`, `fetch` and `split`
forward requests in parts. `relays` has the relays of all clients.
"""
