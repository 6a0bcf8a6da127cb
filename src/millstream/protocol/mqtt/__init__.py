"""MQTT 3.1.1 and 5 as bytes: packets, and names and filters of topics. No sockets, no sessions.

`packets` has the values, `decoder` reads them from a stream of bytes, `encoder` writes them.
`topics` checks and matches names and filters, `topic_tree` finds the filters that match a name, `name_tree` the names
that match a filter.
"""
