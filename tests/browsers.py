"""The browser that pages and traces are looked at with."""

import shutil

import pytest

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str:
    """The first browser on the PATH; skips the test where there is none."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        pytest.skip("no browser: apt-get install chromium")
    return browser
