"""Whether something was drawn on a page's canvases."""

from playwright.sync_api import Page

# Colours that are really different: antialiasing makes many shades of one line.
_COLOURS = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const found = new Set();
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] > 40) found.add((data[at] >> 5) + "," + (data[at + 1] >> 5) + "," + (data[at + 2] >> 5));
  }
  return found.size;
}"""


def colours(page: Page, selector: str) -> list[int]:
    """How many colours each of the canvases shows; 0 for a blank one."""
    return [canvas.evaluate(_COLOURS) for canvas in page.locator(selector).all()]
