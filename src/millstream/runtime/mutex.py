"""Mutual exclusion between the event loop and the workers' threads, for the few values both touch."""

from threading import Lock as Mutex

__all__ = ["Mutex"]
