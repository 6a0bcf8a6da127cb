"""Sessions of MQTT clients over `__mqtt_sessions`, one owner for each client id.

Requests come from the MQTT doors of all nodes. Sessions (`records`) change only by replay (`state`); `machine` decides
who owns a session, when its will is due and when it ends. Messages to publish (QoS 2, wills) wait in an outbox
(`outbox`) until they are appended exactly once; PUBCOMP waits for that.
"""
