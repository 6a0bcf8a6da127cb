"""MQTT 3.1.1 and 5 as bytes: packets, and the names and filters of topics. Nothing here knows of sockets or sessions.

`packets` are the values, `decoder` makes them from a stream of bytes cut anywhere, `encoder` makes bytes of them.
`topics` checks and matches names and filters, `topic_tree` finds the filters that match a name, `name_tree` the names
that match a filter.
"""
