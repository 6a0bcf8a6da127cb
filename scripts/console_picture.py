"""Draw docs/console.png: the console's first view, of a small fleet with two hours of telemetry.

    .venv/bin/python scripts/console_picture.py

Needs Chromium, and the console built (`make console`).
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "console.png"
_MOST_BYTES = 150_000
_PATIENCE_MS = 90_000

sys.path.insert(0, str(ROOT / "tests"))


def main() -> None:
    from support.fleet_api import FleetApi, fill

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("no Chromium on PATH; on Debian: apt-get install chromium")
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        fill(Path(directory))
        api = FleetApi(Path(directory)).start()
        browser = playwright.chromium.launch(
            executable_path=program, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        try:
            page = browser.new_page(viewport={"width": 1200, "height": 760})
            page.set_default_timeout(_PATIENCE_MS)
            page.goto(api.url)
            drawn = page.get_by_role("img", name=re.compile("GPU temperature, newest values"))
            expect(drawn).to_be_visible(timeout=_PATIENCE_MS)
            # Charts grow into their places.
            page.wait_for_timeout(1000)
            picture = page.screenshot()
        finally:
            browser.close()
            api.stop()
    if len(picture) > _MOST_BYTES:
        sys.exit(f"the picture has {len(picture)} bytes, more than {_MOST_BYTES}")
    PICTURE.write_bytes(picture)


if __name__ == "__main__":
    main()
