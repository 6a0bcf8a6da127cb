"""Bytes on the wire and on disk: framing, Kafka messages, record batches, compression.

Pure functions over buffers. May import `runtime.invariant`; never a socket, a file or a clock.
"""
