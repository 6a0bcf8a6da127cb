import pytest

from millstream.http.messages import Problem, Request, Response
from millstream.http.routes import Routes


def handler(_request: Request) -> Response:
    return Response(b"")


ROUTES = Routes(
    dict.fromkeys(
        [
            "GET /health",
            "GET /topics/{topic}",
            "DELETE /topics/{topic}",
            "GET /topics/{topic}/p/{p}",
            "GET /s/{path...}",
        ],
        handler,
    )
)


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/health", {}), ("/%68ealth", {}), ("/topics/a%20b", {"topic": "a b"}), ("/topics/a%2Fb", {"topic": "a/b"}),
        ("/topics/t/p/3", {"topic": "t", "p": "3"}), ("/s/a/b", {"path": "a/b"}), ("/s/", {"path": ""}),
    ],
)  # fmt: skip
def test_a_path_finds_its_handler(path: str, params: dict[str, str]) -> None:
    assert ROUTES.find("GET", path).params == params


@pytest.mark.parametrize("path", ["/", "/healt", "/topics", "/topics/", "/topics/t/p", "/topics/t/p/3/4"])
def test_a_path_that_is_not_there_is_told_what_is(path: str) -> None:
    with pytest.raises(Problem, match=r"there is nothing at .*; try /health") as caught:
        ROUTES.find("GET", path)
    assert caught.value.status == 404


def test_only_what_may_change_something_is_marked() -> None:
    assert [ROUTES.find(method, "/topics/t").route.changes for method in ("GET", "HEAD", "OPTIONS", "DELETE")] == [
        False, False, False, True,
    ]  # fmt: skip
