"""A fleet of GPUs that does not exist: hosts, their jobs by day and night, their physics, and what goes wrong.

`inventory` names the machines, `load` the jobs on them, `faults` what fails when, `gpu` turns load and faults into the
values of the metrics, and `telemetry` into records. All of it is a function of the seed and of time, so that several
instances can share a fleet and a test can produce the same one again. Nothing here knows a clock, a file or a socket.
"""
