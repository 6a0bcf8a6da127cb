"""What the query API says, which is what the page shows."""

import http.client
import json
import urllib.error
import urllib.request
from typing import Any


def answer(page: str, path: str) -> dict[str, Any] | None:
    """None while it does not answer, or cannot."""
    try:
        with urllib.request.urlopen(page + path, timeout=10) as response:
            found = json.load(response)
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return found if isinstance(found, dict) else None


def status(page: str) -> dict[str, Any]:
    return answer(page, "/api/v1/pipeline") or {}


def points_stored(page: str) -> int:
    metrics = (answer(page, "/api/v1/metrics") or {}).get("metrics", [])
    return sum(int(metric["points"]) for metric in metrics)


def state(page: str, elapsed_s: float) -> str:
    job = status(page)
    events = (answer(page, "/api/v1/events?status=open&limit=1000") or {}).get("count", 0)
    return (
        f"{elapsed_s:5.0f} s  {job.get('rows_per_second') or 0:,.0f} rows/s  lag {job.get('lag') or 0:,}  "
        f"stored {points_stored(page):,}  open events {events}"
    )
