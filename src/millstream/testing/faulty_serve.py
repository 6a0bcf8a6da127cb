"""A node as `millstream serve` runs it, on a machine whose disk and clock can be disturbed from outside.

Run as `python -m millstream.testing.faulty_serve`. All settings come from the environment (MILLSTREAM_BROKER_ID=1 and
so on). Each line of standard input is a `Trouble` as JSON, which replaces the previous one; `{}` ends all troubles. A
trouble is in force once the log says "trouble taken". The end of the input means that the parent is gone, and the node
exits.
"""

import os
import sys
import threading

import msgspec

from millstream.broker.process import CannotStart, run
from millstream.cli.settings import settings_for
from millstream.testing.faulty_machine import FaultyClock, FaultyDisk, Trouble

_TAKEN = b'{"event": "trouble taken"}\n'


def _listen(trouble: Trouble) -> None:
    for line in sys.stdin.buffer:
        trouble.take(msgspec.json.decode(line, type=Trouble))
        # In one write, so that no other log line can come in between.
        os.write(sys.stderr.fileno(), _TAKEN)
    os._exit(1)


def main() -> int:
    trouble = Trouble()
    threading.Thread(target=_listen, args=(trouble,), daemon=True).start()
    try:
        return run(settings_for(None, {}), FaultyDisk(trouble), FaultyClock(trouble))
    except CannotStart as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


if __name__ == "__main__":
    code = main()
    # Exit at once: the listening thread would delay the interpreter's own exit.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
