"""A disk in memory that can fail: `SimulatedDisk` stands in for `runtime.disk.SystemDisk`.

What is written is kept twice, as programs see it and as it is stored (`content` for a file's bytes, `tree` for
names). `sync` and `sync_dir` bring the two together; a loss of power throws away what they did not cover, or tears
it (`Survival`). Calls can be made to fail (`faults`), the program can be stopped before any call, bytes can rot.

    disk = SimulatedDisk(seed=7)
    disk.faults.add(Fault(Operation.SYNC, path="*.log"))
    disk.crash_after(12)
    ...
    disk.restart(power_loss=True)

It is stricter than most file systems: syncing a file does not make its name durable, syncing a directory does not
make the directory's own name durable, and names become durable in any order.
"""

from millstream.testing.disk.content import Survival
from millstream.testing.disk.faults import Fault, Faults, Operation
from millstream.testing.disk.simulated import Crashed, SimulatedDisk

__all__ = ["Crashed", "Fault", "Faults", "Operation", "SimulatedDisk", "Survival"]
