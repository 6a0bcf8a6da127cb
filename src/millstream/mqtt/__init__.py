"""The MQTT door: devices publish and subscribe with 3.1.1 and 5, and what they publish is in the log.

Comes in: connections of MQTT clients, and `Doors`. Nothing here knows of the node behind it. `connection` and the files
that it names decide what a client is told, without sockets; `rules` and `record_form` say which MQTT topic is which
record; the listeners and what reads the log for subscribers act.
"""
