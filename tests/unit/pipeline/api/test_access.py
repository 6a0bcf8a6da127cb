"""Who may read the telemetry."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.cli.errors import CommandError
from millstream.cli.pipeline_options import check_access
from millstream.config.pipeline_settings import PipelineSettings
from millstream.http.access import is_loopback
from millstream.pipeline.stores.parquet.store import ParquetStore
from support.api_server import Api, running_api

TOKEN = "s3cret-token"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Api]:
    store = ParquetStore(tmp_path / "store")
    with running_api(store, token=TOKEN) as api:
        yield api
    store.close()


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer  {TOKEN} "])
def test_with_the_token_there_is_data(guarded: Api, given: str) -> None:
    assert guarded.get("/api/v1/gpus", headers={"Authorization": given}).json == {
        "count": 0, "gpus": [], "next_cursor": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "given", [None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \xe9"]
)
def test_without_it_there_is_none(guarded: Api, given: str | None) -> None:
    headers = {} if given is None else {"Authorization": given}
    for path in ("/api/v1/gpus", "/api/v1/pipeline", "/api/v1/nothing", "/api/v1/gpus?limit=bad"):
        answer = guarded.get(path, headers=headers)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert "Authorization: Bearer TOKEN" in answer.error
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_pages_and_health_need_none(guarded: Api) -> None:
    for path in ("/", "/docs", "/docs/docs.js", "/openapi.json", "/health"):
        assert guarded.get(path).status == 200
    described = guarded.get("/openapi.json").json
    assert described["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    assert described["paths"]["/api/v1/gpus"]["get"]["security"] == [{"token": []}]
    assert "security" not in described["paths"]["/health"]["get"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("192.0.2.7", False), ("no such host.invalid", False),
    ],
)  # fmt: skip
def test_what_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_other_machines_need_a_token_or_a_word() -> None:
    everywhere = PipelineSettings(api_host="0.0.0.0")
    with pytest.raises(CommandError, match=r"other machines could read everything at 0\.0\.0\.0.*--insecure"):
        check_access(everywhere, insecure=False)
    check_access(everywhere, insecure=True)
    check_access(PipelineSettings(api_host="0.0.0.0", api_token=TOKEN), insecure=False)
    check_access(PipelineSettings(), insecure=False)


@pytest.mark.parametrize("token", ["two words", "tab\t", "gr\u00fcn"])
def test_a_token_that_no_header_can_carry_is_named(token: str) -> None:
    with pytest.raises(CommandError, match=r"pipeline\.api_token cannot be used: .*ASCII"):
        check_access(PipelineSettings(api_token=token), insecure=False)
