"""`millstream serve`, for as long as the process that started it lives.

Run as `python -m millstream.testing.guarded_serve DIRECTORY serve ...`. Standard input is a pipe whose other end the
parent holds and never writes to: it ends when the parent does, however that happens, kill -9 included. (The kernel's
own signal for this, PR_SET_PDEATHSIG, is bound to the thread that started the process, and a test may use any.)
DIRECTORY, if not empty, is removed then, as nobody is left to do it.
"""

import os
import shutil
import sys
import threading

from millstream.cli.main import main


def _end_with_parent(directory: str) -> None:
    while os.read(0, 1):
        pass
    if directory:
        shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, args=(sys.argv[1],), daemon=True).start()
    sys.exit(main(sys.argv[2:]))
