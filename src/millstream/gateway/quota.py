"""Quotas over HTTP: a caller that has used up its share is answered with 429 until its time is over.

A broker lets a request pass and makes its sender wait; over HTTP the next one is refused instead.
"""

import math
from collections.abc import Callable

from millstream.doors import Caller, QuotaKind, Quotas
from millstream.http.messages import Problem

_MAX_WAITING = 10_000


class HttpQuotas:
    def __init__(self, quotas: Quotas, now: Callable[[], float]) -> None:
        self._quotas = quotas
        self._now = now
        self._until: dict[tuple[str, str, QuotaKind], float] = {}

    def check(self, caller: Caller, kind: QuotaKind) -> None:
        until = self._until.get((str(caller.principal), caller.client_id, kind)) if self._until else None
        if until is not None:
            left = until - self._now()
            if left > 0:
                raise Problem(429, "over the quota", {"retry-after": str(math.ceil(left))})
            del self._until[str(caller.principal), caller.client_id, kind]

    def charge(self, caller: Caller, kind: QuotaKind, amount: float) -> None:
        wait_s = self._quotas.charge(caller, kind, amount)
        if wait_s > 0:
            if len(self._until) >= _MAX_WAITING:
                now = self._now()
                self._until = {who: until for who, until in self._until.items() if until > now}
            self._until[str(caller.principal), caller.client_id, kind] = self._now() + wait_s
