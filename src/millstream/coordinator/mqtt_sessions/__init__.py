"""Sessions of MQTT clients over `__mqtt_sessions`, one owner for each client id.

Comes in: requests of the MQTT door of any node. What a session is (`records`) changes by replay (`state`); `machine`
decides who owns it, when its will is due and when it ends. Messages that the coordinator owes to the log (QoS 2, wills)
stand in an outbox (`outbox`) until they are appended, once, whatever fails; PUBCOMP waits for that (`releases`).
"""
