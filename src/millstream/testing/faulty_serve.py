"""A node as `millstream serve` runs it, on a machine whose disk and clock can be troubled from outside.

Run as `python -m millstream.testing.faulty_serve`. All settings come from the environment (MILLSTREAM_BROKER_ID=1 and
so on). Each line of standard input is a `Trouble` as JSON, which takes the place of the one before; `{}` ends all of
them. The machine is like that when the log says "trouble taken". At the end of the input the parent is gone, and the
node with it.
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
        # In one piece, whatever else is logged at that moment.
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
    # At once: the thread that listens would hold up the interpreter's own end.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
