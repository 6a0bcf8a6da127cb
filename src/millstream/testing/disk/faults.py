"""Which calls fail, and how."""

import errno
import os
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase


class Operation(StrEnum):
    OPEN = "open"
    CREATE = "create"
    READ = "read"
    WRITE = "write"
    TRUNCATE = "truncate"
    ALLOCATE = "allocate"
    SYNC = "sync"
    RENAME = "rename"
    UNLINK = "unlink"
    MAKE_DIRECTORY = "make_directory"
    REMOVE_DIRECTORY = "remove_directory"
    SYNC_DIRECTORY = "sync_directory"


@dataclass(slots=True)
class Fault:
    """Calls of `operation` on matching paths fail with `code`: after `skip` good ones, `times` times (None: always).

    A failing write leaves a part of its bytes, a failing sync leaves them visible but not stored. A READ with `short`
    set returns fewer bytes than asked for instead of failing.
    """

    operation: Operation
    code: int = errno.EIO
    path: str = "*"
    skip: int = 0
    times: int | None = 1
    short: bool = False

    def strikes(self, operation: Operation, path: str) -> bool:
        if operation is not self.operation or self.times == 0 or not fnmatchcase(path, self.path):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """The faults in force; a call meets the first that applies."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        self._faults = [each for each in self._faults if each is not fault]

    def clear(self) -> None:
        self._faults.clear()

    def __bool__(self) -> bool:
        return bool(self._faults)

    def striking(self, operation: Operation, path: str) -> Fault | None:
        if not self._faults:
            return None
        return next((fault for fault in self._faults if fault.strikes(operation, path)), None)

    def check(self, operation: Operation, path: str) -> None:
        fault = self.striking(operation, path)
        if fault is not None:
            raise failure(fault.code, path)


def failure(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
