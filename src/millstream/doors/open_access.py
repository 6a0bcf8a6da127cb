"""A cluster without access control: everybody may do everything, as much as they like."""

from millstream.doors.access import Permission, QuotaKind
from millstream.doors.caller import Caller


class AllowAll:
    def allows(self, _caller: Caller, _permission: Permission, /) -> bool:
        return True

    def check(self, _caller: Caller, _permission: Permission, /) -> None:
        """Nothing is refused."""


class NoQuotas:
    def charge(self, _caller: Caller, _kind: QuotaKind, _amount: float, /) -> float:
        return 0.0
