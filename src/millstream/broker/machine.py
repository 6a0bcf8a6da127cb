"""What the operating system gives to a node, as its parts are handed it: time, disk, threads, tasks."""

import asyncio

import msgspec

from millstream.broker.tasks import Tasks
from millstream.runtime.clock import CautiousTime, Clock
from millstream.runtime.disk import Disk
from millstream.runtime.host import Host
from millstream.runtime.workers import Workers


class Machine(msgspec.Struct, frozen=True):
    loop: asyncio.AbstractEventLoop
    disk: Disk
    clock: Clock
    expiry: CautiousTime
    """The time by which things get too old; a wall clock that jumps does not make it jump."""
    workers: Workers
    tasks: Tasks
    host: Host
