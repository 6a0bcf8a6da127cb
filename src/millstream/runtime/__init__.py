"""All access to the operating system: clock, disk and background tasks.

Other packages decide; this one acts. Tests and the simulator replace only these objects. Nothing
here knows about Kafka.
"""
