import pytest

from millstream.cli import output


def test_a_table_in_a_pipe_is_tab_separated(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output.table(("name", "count", "list"), [("a", 1234567, (1, 2)), ("b\tc", None, ())])
    assert capsysbinary.readouterr().out == b"name\tcount\tlist\na\t1234567\t1,2\nb c\t\t\n"


def test_json_in_a_pipe_is_one_line(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output.json_document({"a": [1, None]})
    assert capsysbinary.readouterr().out == b'{"a":[1,null]}\n'


def test_text_that_is_not_unicode_comes_out_as_it_went_in(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output.line(b"\xff".decode("utf-8", "surrogateescape"))
    assert capsysbinary.readouterr().out == b"\xff\n"


@pytest.mark.parametrize(
    ("value", "terminal", "plain"),
    [
        (None, "-", ""),
        (1234567, "1,234,567", "1234567"),
        (True, "true", "true"),
        ((1, 2), "1, 2", "1,2"),
        ("text", "text", "text"),
    ],
)
def test_cells_are_written_for_their_reader(value: object, terminal: str, plain: str) -> None:
    assert output.terminal_cell(value) == terminal
    assert output.plain_cell(value) == plain


def test_facts_in_a_pipe_are_name_tab_value(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output.facts({"topic": "t", "messages": 5})
    assert capsysbinary.readouterr().out == b"topic\tt\nmessages\t5\n"
