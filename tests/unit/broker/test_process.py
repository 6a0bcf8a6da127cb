"""The process of a node."""

import subprocess
import sys
from textwrap import dedent


def test_the_garbage_collector_runs_seldom_while_the_logs_are_loaded() -> None:
    """It would go through the new objects of all logs again and again."""
    script = """
        import gc
        from millstream.broker import process
        from millstream.config.settings import Settings
        from millstream.storage.store import DataDirectoryInUse

        class Node:
            def __init__(self, *_): ...
            async def start(self):
                print(gc.get_threshold()[0])
                raise DataDirectoryInUse("it has started")
            async def stop(self): ...

        process.Node = Node
        try:
            process.run(Settings())
        except process.CannotStart:
            pass
    """
    done = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 10_000


def test_a_node_loads_the_code_of_queues_and_http_when_it_needs_them() -> None:
    script = "import sys, millstream.broker.process; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = [
        each
        for each in done.stdout.split()
        if each.startswith(("millstream.broker.shares", "millstream.coordinator.shares", "millstream.http"))
    ]
    assert loaded == []
