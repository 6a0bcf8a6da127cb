"""Which brokers keep a partition: a plug-in, chosen by name.

`ring`, `modulo` and `balanced` are pure: the same brokers, topic and numbers always give the same places. `choice`
finds them by their names. May come in: nothing of the node. Must not: the image, records, clocks, chance.
"""
