"""A fleet of GPUs that does not exist: its machines, jobs and faults (`load`), and what they report (`telemetry`).

All of it is a function of the seed and of time, so that several instances can share a fleet and a test can produce the
same one again. Nothing here knows a clock, a file or a socket.
"""
