import pytest

from millstream.http.access import Hosts, has_token
from millstream.http.messages import Problem, Request

FINE = [
    "localhost", "localhost:8080", "127.0.0.1:80", "[::1]:8080", "[::1]", "msg-queue-proxy:8080", "192.0.2.4",
    "msg-queue-0.msg-queue.default.svc.cluster.local:8080", "msg-queue.default.svc", "box.local", "LOCALHOST",
]  # fmt: skip
REFUSED = [
    "evil.example.com",
    "evil.example.com:80",
    "localhost.evil.com",
    "",
    ":80",
    "a b",
    "x@y",
    "127.0.0.1.nip.io",
]


@pytest.mark.parametrize("host", FINE)
def test_names_that_no_stranger_can_own_are_fine(host: str) -> None:
    Hosts().check(host.encode())


@pytest.mark.parametrize("host", REFUSED)
def test_other_names_are_refused_with_advice(host: str) -> None:
    with pytest.raises(Problem, match=r"http\.allowed_hosts") as caught:
        Hosts().check(host.encode())
    assert caught.value.status == 421


@pytest.mark.parametrize("allowed", ["mq.example.com", ".example.com", "*"])
def test_settings_add_names(allowed: str) -> None:
    Hosts([allowed]).check(b"MQ.example.com:443")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("authorization", "Bearer secret", True),
        ("authorization", "bearer secret", True),
        ("x-api-key", "secret", True),
        ("authorization", "Basic secret", False),
        ("x-api-key", "secre", False),
        ("x-api-key", "\xe9", False),
        ("accept", "secret", False),
    ],
)
def test_a_token_comes_in_one_of_two_headers(name: str, value: str, expected: bool) -> None:
    request = Request("GET", "/", b"", {name.encode(): value.encode("latin-1")}, {}, "")
    assert has_token(request, "secret") is expected
