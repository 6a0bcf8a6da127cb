"""The benchmark harness: measures our broker next to librdkafka's mock cluster, the reference in C.

`peers` starts and watches the systems under test, `driver` builds and runs the load driver, `scenarios` says
what is measured, `goals` what we want of it, `tables` and `render` write it down. The harness talks to the
broker from outside only, as a user would: nothing here imports millstream.
"""
