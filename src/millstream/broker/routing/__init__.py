"""Any node for everything: what another node leads or coordinates is asked of it.

For doors, by value: `partitions`, `coordinators` and `queues` ask here or there; `routes` finds the node and decides
what may be asked again; `calls` are what nodes ask each other, `call_link` and `served_calls` the two ends of it.
`here` is what this node leads, `batcher` and `follow` are shared by all doors, `metadata` is what doors know of the
cluster. `node_doors` and `gateway_doors` put them together, for a node and for a process that is none.

For Kafka clients, by request: `relay` is one client's way to all nodes and decides by API who answers; `lane` is a
connection of that client to one node, `local_lane` the same to this one;
`produce`, `fetch` and `split` are what is forwarded in parts. `relays` is all of them.
"""
