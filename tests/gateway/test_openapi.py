"""What the OpenAPI document says is true: requests made up from it get the answers that it promises."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from millstream.testing import EmbeddedBroker

# A busy machine may answer 502 or 503, which the document has; 500 it has nowhere.
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def openapi(node: EmbeddedBroker) -> Any:
    return schemathesis.openapi.from_url(f"{node.http_url}/openapi.json")


schema = schemathesis.pytest.from_fixture("openapi")


@schema.parametrize()
@settings(
    max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
)
def test_every_call_answers_as_described(case: Case) -> None:
    if case.path == "/consume":
        # A stream has no end; one answer has.
        case.headers["accept"] = "application/json"
        case.query = {**(case.query or {}), "wait": 0}
    if case.path.endswith("/records"):
        case.query = {**(case.query or {}), "wait": 0}
    if case.path == "/admin/topics" and case.method == "POST" and isinstance(case.body, dict):
        case.body["partitions"] = 1
    case.call_and_validate(checks=CHECKS, timeout=90)


def test_what_is_served_is_described(gateway: httpx.Client) -> None:
    described = gateway.get("/openapi.json").json()["paths"]
    for path in (
        "/produce",
        "/consume",
        "/ack",
        "/nack",
        "/reject",
        "/topics",
        "/status",
        "/health",
        "/stats",
    ):
        assert path in described
