"""The partitions that this node keeps: role, high watermark and waiters; finding, opening and removing them; flushing,
retention and compaction.
"""
