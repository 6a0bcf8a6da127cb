"""What docs/GATEWAY.md says of the frame's bytes is so."""

from pathlib import Path

from millstream.doors import Message
from support.frames import frame_of

PAGE = Path(__file__).parents[3] / "docs" / "GATEWAY.md"


def test_the_frame_on_the_page_is_the_codecs() -> None:
    text = " ".join(PAGE.read_text().split())
    assert frame_of(Message(b"k", b"v", (), 5)).hex(" ") in text
