"""What the OpenAPI document says is true: requests made up from it get the answers that it promises."""

import asyncio
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

from millstream.broker.routing.gateway_doors import GatewayDoors
from millstream.config.load import load_settings
from millstream.doors.access import AllowAll, NoQuotas
from millstream.gateway.gateway import attach
from millstream.observability.metrics import Registry
from millstream.runtime.clock import SystemClock
from millstream.testing import EmbeddedBroker

# A busy machine may answer 502 or 503, which the document has; 500 it has nowhere.
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def openapi(node: EmbeddedBroker) -> Any:
    return schemathesis.openapi.from_url(f"{node.http_url}/openapi.json")


schema = schemathesis.pytest.from_fixture("openapi")


@schema.parametrize()
@settings(
    max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
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
    """All routes of the gateway, but for the page and the document itself, and none that is not there."""

    async def served() -> set[str]:
        doors = GatewayDoors(["127.0.0.1:1"], AllowAll(), NoQuotas(), SystemClock()).doors
        return {*attach(doors, Registry(), load_settings(), SystemClock()).routes}

    document = gateway.get("/openapi.json").json()["paths"]
    described = {f"{method.upper()} {path}" for path, calls in document.items() for method in calls}
    pages = {each for each in asyncio.run(served()) if "docs" in each or "openapi" in each}
    assert asyncio.run(served()) - pages == described - {"GET /health", "GET /metrics", "GET /ready"}
