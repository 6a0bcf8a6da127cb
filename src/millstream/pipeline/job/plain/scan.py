"""Compiled loops over the bytes of JSON: where a value ends, what a number or a time is.

-1 for a position says "not plain": malformed, or merely too unusual to be worth a loop here.
"""

from typing import Any

import numpy as np

from millstream.spark.compiled import compiled

ESCAPED, NOT_ASCII = 1, 2
"""What a string may hold."""

HARD_NUMBER = 1
"""A number whose nearest double takes more than a division to find."""
NO_NUMBER = 2

NO_TIME = -(1 << 63)

TRUE_OR_FALSE, NULL = 1, 2

_MOST_DIGITS = 30
_DIGITS_OF_A_WORD = 19
_EXACT_TENS = 22
_EXACT_WHOLE = 1 << 53
_TENS = 10.0 ** np.arange(_EXACT_TENS + 1)
_TRUE, _FALSE, _NULL = (np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))
_ORDINARY = np.array([0x20 <= byte < 0x80 and byte not in b'"\\' for byte in range(256)])
_DAYS_BEFORE = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365], np.int64)


@compiled
def blank(data: Any, position: int, end: int) -> int:
    """The first position that holds no blank."""
    while position < end:
        byte = data[position]
        if byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09:
            return position
        position += 1
    return position


@compiled
def string_end(data: Any, position: int, end: int) -> tuple[Any, int]:
    """The position behind the closing quote, from the one behind the opening; and what the string holds.

    Escapes of one letter only; what is not ASCII must be right UTF-8.
    """
    holds = 0
    # Unsigned, or the compiled code looks for negative indices at every byte.
    at, stop, one = np.uint64(position), np.uint64(end), np.uint64(1)
    while at < stop:
        byte = data[at]
        if _ORDINARY[byte]:
            at += one
        elif byte == 0x22:
            return np.int64(at + one), holds
        elif byte < 0x20:
            return np.int64(-1), 0
        elif byte == 0x5C:
            at += one
            if at >= stop or not _is_simple_escape(data[at]):
                return np.int64(-1), 0
            holds |= ESCAPED
            at += one
        else:
            behind = _letter_end(data, np.int64(at), end)
            if behind < 0:
                return np.int64(-1), 0
            at = np.uint64(behind)
            holds |= NOT_ASCII
    return np.int64(-1), 0


@compiled
def _is_simple_escape(byte: int) -> bool:
    return (
        byte == 0x22
        or byte == 0x5C
        or byte == 0x2F
        or byte == 0x62
        or byte == 0x66
        or byte == 0x6E
        or byte == 0x72
        or byte == 0x74
    )


@compiled
def unescaped(byte: int) -> int:
    """What stands behind a backslash, as the byte it stands for."""
    if byte == 0x62:
        return 0x08
    if byte == 0x66:
        return 0x0C
    if byte == 0x6E:
        return 0x0A
    if byte == 0x72:
        return 0x0D
    if byte == 0x74:
        return 0x09
    return byte


@compiled
def _letter_end(data: Any, position: Any, end: int) -> Any:
    """Behind a letter of two to four bytes in UTF-8: the shortest form, no surrogates, nothing above U+10FFFF."""
    first = data[position]
    low, high = 0x80, 0xBF
    if 0xC2 <= first <= 0xDF:
        more = 1
    elif 0xE0 <= first <= 0xEF:
        more = 2
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        more = 3
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return -1
    if position + more >= end:
        return -1
    second = data[position + 1]
    if second < low or second > high:
        return -1
    for place in range(position + 2, position + more + 1):
        if data[place] < 0x80 or data[place] > 0xBF:
            return -1
    return position + more + 1


@compiled
def number_end(data: Any, position: int, end: int) -> int:
    """Behind a number of JSON's grammar that has no exponent."""
    if data[position] == 0x2D:
        position += 1
    first = position
    while position < end and 0x30 <= data[position] <= 0x39:
        position += 1
    whole = position - first
    if whole == 0 or whole > _MOST_DIGITS or (whole > 1 and data[first] == 0x30):
        return -1
    if position < end and data[position] == 0x2E:
        position += 1
        first = position
        while position < end and 0x30 <= data[position] <= 0x39:
            position += 1
        if position == first or whole + position - first > _MOST_DIGITS:
            return -1
    if position < end and (data[position] == 0x65 or data[position] == 0x45):
        return -1
    return position


@compiled
def number_of(data: Any, position: int, end: int) -> tuple[float, int]:
    """The double nearest to a number that `number_end` has seen; or HARD_NUMBER, or NO_NUMBER for minus nothing."""
    negative = data[position] == 0x2D
    if negative:
        position += 1
    digits = np.uint64(0)
    seen = 0
    after_point = 0
    in_fraction = False
    while position < end:
        byte = data[position]
        position += 1
        if byte == 0x2E:
            in_fraction = True
            continue
        if seen or byte != 0x30:
            seen += 1
            if seen > _DIGITS_OF_A_WORD:
                return 0.0, HARD_NUMBER
        digits = digits * np.uint64(10) + np.uint64(byte - 0x30)
        if in_fraction:
            after_point += 1
    if digits == np.uint64(0) and negative:
        return 0.0, NO_NUMBER
    if after_point:
        if digits > np.uint64(_EXACT_WHOLE) or after_point > _EXACT_TENS:
            return 0.0, HARD_NUMBER
        value = np.float64(digits) / _TENS[after_point]
    else:
        value = np.float64(digits)
    return (-value if negative else value), 0


@compiled
def _follows(data: Any, position: int, end: int, word: Any) -> bool:
    if position + len(word) > end:
        return False
    for index in range(len(word)):  # noqa: SIM110 - compiled
        if data[position + index] != word[index]:
            return False
    return True


@compiled
def literal_end(data: Any, position: int, end: int) -> tuple[int, int]:
    """Behind `true`, `false` or `null`, and which of them it was."""
    if _follows(data, position, end, _NULL):
        return position + 4, NULL
    if _follows(data, position, end, _TRUE):
        return position + 4, TRUE_OR_FALSE
    if _follows(data, position, end, _FALSE):
        return position + 5, TRUE_OR_FALSE
    return -1, 0


@compiled
def _digits(data: Any, position: int, count: int) -> Any:
    """So many digits as a number, or a negative one."""
    number: Any = 0
    for place in range(position, position + count):
        byte = data[place]
        if byte < 0x30 or byte > 0x39:
            return -1
        number = number * 10 + (np.int64(byte) - 0x30)
    return number


@compiled
def time_of(data: Any, position: int, end: int) -> Any:
    """Microseconds since 1970 of `2025-07-18T20:42:34.5Z` or with an offset such as +02:00; NO_TIME for all else.

    Digits behind the sixth are cut off.
    """
    if end - position < 20 or end - position > 35:
        return NO_TIME
    year, month = _digits(data, position, 4), _digits(data, position + 5, 2)
    day, hour = _digits(data, position + 8, 2), _digits(data, position + 11, 2)
    minute, second = _digits(data, position + 14, 2), _digits(data, position + 17, 2)
    if data[position + 4] != 0x2D or data[position + 7] != 0x2D:
        return NO_TIME
    if data[position + 13] != 0x3A or data[position + 16] != 0x3A:
        return NO_TIME
    if data[position + 10] != 0x54 and data[position + 10] != 0x20:
        return NO_TIME
    if year < 1 or month < 1 or month > 12 or day < 1 or hour < 0 or hour > 23:
        return NO_TIME
    if minute < 0 or minute > 59 or second < 0 or second > 59:
        return NO_TIME
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    length = _DAYS_BEFORE[month] - _DAYS_BEFORE[month - 1]
    if day > length + (1 if leap and month == 2 else 0):
        return NO_TIME
    position += 19
    fraction: Any = 0
    if data[position] == 0x2E:
        position += 1
        width = 0
        while position < end and 0x30 <= data[position] <= 0x39:
            if width < 6:
                fraction = fraction * 10 + (np.int64(data[position]) - 0x30)
            width += 1
            position += 1
        if width == 0 or width > 9:
            return NO_TIME
        for _ in range(width, 6):
            fraction *= 10
    offset_minutes = _zone(data, position, end)
    if offset_minutes == NO_TIME:
        return NO_TIME
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400 - 719162
    days += _DAYS_BEFORE[month - 1] + (1 if leap and month > 2 else 0) + day - 1
    seconds = ((days * 24 + hour) * 60 + minute - offset_minutes) * 60 + second
    return seconds * 1_000_000 + fraction


@compiled
def _zone(data: Any, position: int, end: int) -> Any:
    """Minutes east of UTC, of what must be the rest of a time."""
    if position + 1 == end and data[position] == 0x5A:
        return 0
    if position + 6 != end or data[position + 3] != 0x3A:
        return NO_TIME
    hours, minutes = _digits(data, position + 1, 2), _digits(data, position + 4, 2)
    if hours < 0 or hours > 17 or minutes < 0 or minutes > 59:
        return NO_TIME
    if data[position] == 0x2B:
        return hours * 60 + minutes
    if data[position] == 0x2D:
        return -(hours * 60 + minutes)
    return NO_TIME
