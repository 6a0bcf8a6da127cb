"""Loading pages while other tests change the machine's network."""

from collections.abc import Callable

from playwright.sync_api import Error

_TRIES = 20


def load(page: Callable[[], object]) -> None:
    """Go to a page, or load it again: Chromium gives up when a network interface comes or goes meanwhile."""
    for _ in range(_TRIES):
        try:
            page()
        except Error as error:
            if "ERR_NETWORK_CHANGED" not in str(error):
                raise
        else:
            return
    raise AssertionError(f"the network changed during each of {_TRIES} tries to load a page")
