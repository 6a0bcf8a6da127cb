"""The status file that the job writes after each batch, and whether it still does."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson

from millstream.pipeline.api.answers import Json

_ALIVE_FOR = timedelta(seconds=30)


def read_status(path: Path | None) -> Json:
    """Its content plus `running`; a job that never ran, or a file that cannot be read, is not running."""
    if path is None:
        return {"running": False}
    try:
        content = orjson.loads(path.read_bytes())
        updated_at = datetime.fromisoformat(str(content["updated_at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return {"running": False}
    if updated_at.tzinfo is None:
        updated_at = updated_at.replace(tzinfo=UTC)
    stopped = content.get("running") is False
    return {**content, "running": not stopped and datetime.now(UTC) - updated_at < _ALIVE_FOR}
