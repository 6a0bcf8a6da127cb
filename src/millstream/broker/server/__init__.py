"""The node's listeners: connections, the order and memory of replies, and limits on what clients send.

Bytes come in, whole requests go to `api`. Nothing here knows what a request means.
"""
