"""Hints name the pip command that fits how this adrenoc was installed."""

import json
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from adrenoc.base.host import extras


class _Installed:
    def __init__(self, said: dict[str, Any] | None) -> None:
        self.said = said

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.said is None else json.dumps(self.said)


@pytest.mark.parametrize(
    ("said", "command"),
    [
        (
            {"url": "file:///home/me/my%20adrenoc", "dir_info": {}},
            "pip install '/home/me/my adrenoc[link]'",
        ),
        (
            {"url": "file:///src/adrenoc", "dir_info": {"editable": True}},
            "pip install -e '/src/adrenoc[link]'",
        ),
        (
            {"url": "https://example.org/adrenoc-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'adrenoc[link] @ https://example.org/adrenoc-0.1.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'adrenoc[link] @ git+https://example.org/a.git'",
        ),
        (None, "pip install 'adrenoc[link]'"),
    ],
)
def test_command_is_of_what_was_installed(
    said: dict[str, Any] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "distribution", lambda _: _Installed(said))
    assert extras.pip_install("link") == command


def test_tree_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr(extras, "distribution", fail)
    assert extras.pip_install("link") == "pip install '.[link]'"
