"""Sizes such as `1GB` and durations such as `7d`, read and written.

Units of size are powers of 1024 whether written KB or KiB, as Kafka's own defaults are. `unlimited` and -1
are "no limit".
"""

import re

UNLIMITED = -1

_SIZE_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40, "PB": 1 << 50}
_DURATION_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION_SPELLINGS = {"min": "m", "sec": "s", "": "", **{unit: unit for unit in _DURATION_UNITS}}

_AMOUNT = re.compile(r"(-?\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def parse_size(value: object) -> int:
    """Bytes from `16KB`, `1.5GB`, `1GiB`, a plain number of bytes, or `unlimited`."""
    if isinstance(value, str) and value.strip().lower() == "unlimited":
        return UNLIMITED
    number, unit = _split(value, "a size such as 512KB or 1GB")
    factor = _SIZE_UNITS.get(_size_unit(unit))
    if factor is None:
        raise ValueError(
            f"{value!r} has the unknown unit {unit!r}; use B, KB, MB, GB or TB, for example 512KB"
        )
    return _whole(number, factor, value, "bytes")


def parse_duration_ms(value: object) -> int:
    """Milliseconds from `5ms`, `1.5s`, `10m`, `24h`, `7d`, `2w`, or `unlimited`; a number needs a unit."""
    if isinstance(value, str) and value.strip().lower() == "unlimited":
        return UNLIMITED
    number, unit = _split(value, "a duration such as 500ms, 30s or 7d")
    if unit == "" and float(number) in (0, UNLIMITED):
        return int(float(number))
    factor = _DURATION_UNITS.get(_DURATION_SPELLINGS.get(unit.lower(), unit))
    if factor is None:
        wrong = f"the unknown unit {unit!r}" if unit else "no unit"
        raise ValueError(
            f"{value!r} has {wrong}; use ms, s, m, h, d or w, for example {number}s or {number}ms"
        )
    return _whole(number, factor, value, "milliseconds")


def format_size(size_bytes: int) -> str:
    """The shortest exact spelling: 1073741824 is `1GB`, 1048588 is `1048588B`."""
    return "unlimited" if size_bytes == UNLIMITED else _format(size_bytes, _SIZE_UNITS, "B")


def format_duration_ms(duration_ms: int) -> str:
    """The shortest exact spelling: 604800000 is `7d`, 90000 is `90s`."""
    if duration_ms == UNLIMITED:
        return "unlimited"
    if duration_ms < 14 * _DURATION_UNITS["d"]:
        return _format(duration_ms, {unit: f for unit, f in _DURATION_UNITS.items() if unit != "w"}, "ms")
    return _format(duration_ms, _DURATION_UNITS, "ms")


def _format(amount: int, units: dict[str, int], smallest: str) -> str:
    if amount > 0:
        for unit, factor in reversed(units.items()):
            if amount % factor == 0:
                return f"{amount // factor}{unit}"
    return f"{amount}{smallest}"


def _split(value: object, expected: str) -> tuple[str, str]:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not {expected}")
    match = _AMOUNT.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{value!r} is not {expected}")
    return match[1], match[2]


def _size_unit(unit: str) -> str:
    upper = unit.upper()
    if upper in ("", "B"):
        return "B"
    return upper.removesuffix("IB" if upper.endswith("IB") else "B") + "B"


def _whole(number: str, factor: int, value: object, unit: str) -> int:
    if "." not in number:
        amount = int(number) * factor
    else:
        from fractions import Fraction

        exact = Fraction(number) * factor
        if exact.denominator != 1:
            raise ValueError(f"{value!r} is not a whole number of {unit}")
        amount = exact.numerator
    if amount < 0 and amount != UNLIMITED:
        raise ValueError(f"{value!r} is negative; write unlimited where no limit is meant")
    return amount


def listener_text(name: str, host: str, port: int) -> str:
    """As Kafka's settings write a listener."""
    return f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}"
