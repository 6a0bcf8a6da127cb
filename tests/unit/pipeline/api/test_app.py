"""What surrounds the calls: pages, the job's status, a store in trouble, many requests at once."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.pipeline.stores.base import StoreUnavailable
from millstream.pipeline.stores.parquet.store import ParquetStore
from support.api_server import running_api
from support.store_rows import point, put


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = ParquetStore(tmp_path / "store")
    yield made
    made.close()


def test_an_empty_store_is_no_error(store: ParquetStore) -> None:
    with running_api(store) as api:
        for path in ("gpus", "hosts", "metrics", "rollups", "events", "latest"):
            assert api.get(f"/api/v1/{path}").json["count"] == 0
        assert api.get("/health").json["status"] == "ok"


def test_without_a_console_the_first_page_has_links(store: ParquetStore) -> None:
    with running_api(store) as api:
        page = api.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert b'href="/docs"' in page.body
        docs = api.get("/docs")
        assert b"/docs/docs.js" in docs.body
        assert api.get("/docs/docs.js").headers["content-type"].startswith("text/javascript")
        assert api.get("/docs/docs.css").headers["content-type"].startswith("text/css")
        for page in (docs, api.get("/docs/docs.js"), api.get("/docs/docs.css")):
            assert b"http://" not in page.body, "nothing comes from elsewhere"
            assert b"https://" not in page.body, "nothing comes from elsewhere"
        assert "default-src 'self'" in docs.headers["content-security-policy"]


def test_the_console_is_served_with_its_types(store: ParquetStore, tmp_path: Path) -> None:
    console = tmp_path / "console"
    (console / "assets").mkdir(parents=True)
    (console / "index.html").write_text("<!doctype html>the page")
    (console / "assets" / "index-1.js").write_text("1")
    (console / "assets" / "index-1.css").write_text("a{}")
    (console / "logo.svg").write_text("<svg/>")
    (tmp_path / "secret").write_text("secret")
    with running_api(store, console_dir=console) as api:
        for path, kind in {
            "/": "text/html", "/events/today": "text/html", "/assets/index-1.js": "text/javascript",
            "/assets/index-1.css": "text/css", "/logo.svg": "image/svg+xml",
        }.items():  # fmt: skip
            answer = api.get(path)
            assert (answer.status, answer.headers["content-type"].split(";")[0]) == (200, kind), path
        assert "immutable" in api.get("/assets/index-1.js").headers["cache-control"]
        assert api.get("/").headers["cache-control"] == "no-cache"
        for path in ("/../secret", "/%2e%2e/secret", "/assets/gone.js", "/api/nothing", "/a%00b.js"):
            answer = api.get(path)
            assert (answer.status, answer.body == b"secret") == (404, False), path
        assert api.get("/", "POST").status == 405
        assert api.get("/api/v1/gpus").json["count"] == 0
        assert api.get("/docs").status == 200


@pytest.mark.parametrize(
    ("content", "running"),
    [
        ({"rows_per_second": 5.5, "age_s": 1}, True),
        ({"rows_per_second": 5.5, "age_s": 60}, False),
        ({"rows_per_second": 5.5, "age_s": 1, "running": False}, False),
    ],
)
def test_the_jobs_status(store: ParquetStore, tmp_path: Path, content: dict[str, Any], running: bool) -> None:
    status = tmp_path / "status.json"
    updated_at = datetime.now(UTC) - timedelta(seconds=content.pop("age_s"))
    status.write_text(json.dumps({**content, "updated_at": updated_at.isoformat()}))
    with running_api(store, status) as api:
        answer = api.get("/api/v1/pipeline").json
        assert (answer["running"], answer["rows_per_second"]) == (running, 5.5)
        status.write_text("half a fi")
        assert api.get("/api/v1/pipeline").json == {"running": False}
        status.unlink()
        assert api.get("/api/v1/pipeline").json == {"running": False}


def test_a_store_that_cannot_be_read_is_503(store: ParquetStore, tmp_path: Path) -> None:
    (path,) = put(tmp_path / "store", [point()])
    path.write_bytes(b"this is not Parquet")
    with running_api(store) as api:
        answer = api.get("/api/v1/gpus")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert "cannot read the store at" in answer.error


class SlowStore(ParquetStore):
    """Its hosts take as long as the test wants."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked, self.go_on = threading.Semaphore(0), threading.Event()

    def hosts(self) -> Any:
        self.asked.release()
        assert self.go_on.wait(90)
        raise StoreUnavailable("gone")


def test_a_slow_query_stops_nobody_else(tmp_path: Path) -> None:
    store = SlowStore(tmp_path / "store")
    with running_api(store) as api, ThreadPoolExecutor() as pool:
        slow = [pool.submit(api.get, "/api/v1/hosts") for _ in range(3)]
        for _ in slow:
            assert store.asked.acquire(timeout=90)
        assert api.get("/api/v1/gpus").status == 200
        assert api.get("/health").status == 200
        store.go_on.set()
        assert [each.result(90).status for each in slow] == [503] * 3
    store.close()
