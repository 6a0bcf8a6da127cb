"""Every story in this directory ends as it says.

After a wanted change of behaviour, `MILLSTREAM_REWRITE=1 pytest tests/scenario` writes the new ending; read the diff.
"""

import os
from pathlib import Path

import pytest

from scenario.raft.story import play

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_story_happens_as_told(path: Path) -> None:
    happened = play(path)
    if os.environ.get("MILLSTREAM_REWRITE"):
        path.write_text(happened)
    assert happened == path.read_text()
