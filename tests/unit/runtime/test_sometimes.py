import re
from pathlib import Path

import millstream
from millstream.runtime.sometimes import MARKS, recorded, sometimes

_CALL = re.compile(r"\bsometimes\(\s*\"([^\"]+)\"\s*\)")


def test_every_mark_in_the_code_is_declared_and_every_declared_one_is_in_the_code() -> None:
    sources = Path(millstream.__file__).parent.rglob("*.py")
    called = {mark for path in sources for mark in _CALL.findall(path.read_text())}
    assert sorted(called) == sorted(MARKS)
    assert len(set(MARKS)) == len(MARKS)


def test_marks_are_counted_while_somebody_records() -> None:
    counts: dict[str, int] = {}
    sometimes("a disk was full")
    with recorded(counts):
        sometimes("a disk was full")
        sometimes("a disk was full")
    sometimes("a disk was full")
    assert counts == {"a disk was full": 2}
