"""Queues on partitions: the states of one partition's records for one group, and the coordinator that stores them.

Nothing here reads a log, a clock or a socket. A consumer is a name (group and member), whichever door it uses.
"""
