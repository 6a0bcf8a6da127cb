"""`millstream serve`, for as long as its parent process lives.

Run as `python -m millstream.testing.guarded_serve DIRECTORY serve ...`. Standard input is a pipe to which the parent
never writes: it ends when the parent does, even by kill -9. (The kernel's own signal for this, PR_SET_PDEATHSIG, is
bound to the thread that started the process, and a test may use any.) A non-empty DIRECTORY is then removed, because
nobody else would.
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
