"""The only door to the operating system: clock, disk and background tasks.

Everything above decides; what it decided is done here. A test or the simulator replaces these
objects and nothing else. Nothing in this room knows about Kafka.
"""
