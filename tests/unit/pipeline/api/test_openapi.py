"""The OpenAPI document is valid, and the server does what it says."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.pipeline.api.calls import openapi_document
from millstream.pipeline.stores.parquet.layout import EVENTS_ROOM, MINUTES_ROOM
from millstream.pipeline.stores.parquet.store import ParquetStore
from support.api_server import Api, running_api
from support.store_rows import event, point, put, rollup

jsonschema = pytest.importorskip("jsonschema")
validator = pytest.importorskip("openapi_spec_validator")

DOCUMENT = openapi_document()
OPERATIONS: dict[str, dict[str, Any]] = {path: methods["get"] for path, methods in DOCUMENT["paths"].items()}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    root = tmp_path_factory.mktemp("store")
    put(root, [point(i, uuid) for i in range(5) for uuid in ("GPU-1", "GPU-2")])
    put(root, [rollup(60 * i) for i in range(5)], room=MINUTES_ROOM)
    put(root, [event(60 * i, f"e{i}") for i in range(5)], room=EVENTS_ROOM)
    store = ParquetStore(root)
    with running_api(store) as made:
        yield made
    store.close()


def test_the_document_is_valid_openapi_3_1(api: Api) -> None:
    served = api.get("/openapi.json").json
    assert served["openapi"] == "3.1.0"
    validator.validate(served)


def check_answer(path: str, status: int, body: Any) -> None:
    response = OPERATIONS[path]["responses"][str(status)]
    schema = {**response["content"]["application/json"]["schema"], "components": DOCUMENT["components"]}
    jsonschema.validate(body, schema)


@pytest.mark.parametrize("path", OPERATIONS)
def test_every_call_answers_in_its_documented_shape(api: Api, path: str) -> None:
    query = "?start_time=2026-03-01T12:00:00Z&end_time=2026-03-01T13:00:00Z" if "{" in path else ""
    answer = api.get(path.replace("{uuid}", "GPU-1") + query)
    assert answer.status == 200
    check_answer(path, 200, answer.json)


TIMES = st.datetimes().map(lambda moment: moment.isoformat() + "Z")
VALUES = {
    "date-time": TIMES | st.just("2026-03-01T12:00:02Z") | st.text(max_size=30),
    "integer": st.integers().map(str) | st.text(max_size=5),
}


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str]:
    """A call with parameters that are right, nearly right, or rubbish."""
    path = draw(st.sampled_from(sorted(OPERATIONS)))
    query = {}
    for parameter in OPERATIONS[path].get("parameters", ()):
        if parameter["in"] == "path" or not (parameter["required"] or draw(st.booleans())):
            continue
        schema = parameter["schema"]
        kind = VALUES.get(schema.get("format") or schema["type"], st.text(max_size=20))
        if "enum" in schema:
            kind = st.sampled_from(schema["enum"]) | st.text(max_size=5)
        query[parameter["name"]] = draw(kind)
    if draw(st.integers(0, 9)) == 0:
        query[draw(st.text(min_size=1, max_size=10))] = draw(st.text(max_size=10))
    uuid = draw(st.sampled_from(["GPU-1", "GPU-3", "'; DROP TABLE points; --", "%", "\\", "ü"]))
    target = path.replace("{uuid}", quote(uuid, safe=""))
    return path, f"{target}?{urlencode(query, errors='replace')}" if query else target


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(requests())
def test_no_request_gets_an_answer_that_is_not_documented(api: Api, request: tuple[str, str]) -> None:
    path, target = request
    answer = api.get(target)
    assert answer.status in {200, 400, 404}, (target, answer.body)
    if answer.status == 200 or str(answer.status) in OPERATIONS[path]["responses"]:
        check_answer(path, answer.status, answer.json)
    else:
        assert answer.error
