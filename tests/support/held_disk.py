"""A node whose fsyncs are held up until the test lets them go."""

import threading

from support.inprocess import InProcessNode


class HeldDisk:
    """Every thread that could sync is made to wait."""

    def __init__(self, node: InProcessNode) -> None:
        self._go = threading.Event()
        threads = len(node.broker.machine.workers._threads)
        held = threading.Barrier(threads + 1)

        def wait() -> None:
            held.wait(300)
            self._go.wait(60)

        for _ in range(threads):
            node.broker.machine.workers.submit(wait, lambda *_: None)
        held.wait(300)

    def let_go(self) -> None:
        self._go.set()
