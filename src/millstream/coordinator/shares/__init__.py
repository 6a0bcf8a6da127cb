"""Queues on partitions: what one group has done with the records of one partition, and the coordinator that keeps it.

Nothing here reads a log, a clock or a socket. A consumer is a name (group and member); by which door it came is not
known here.
"""
