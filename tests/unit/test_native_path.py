"""Paths that are handed to TVM, and words of hints."""

import os
import sys
from pathlib import Path

import pytest

from adrenoc.base.errors import OptionError
from adrenoc.base.files.read import spell_native_path
from adrenoc.base.text.spelling import quote_word
from tests.commands import run_program


def test_paths_are_given_in_unicode():
    assert spell_native_path(Path("/a/\u00e9"), hint="x") == "/a/\u00e9"
    with pytest.raises(OptionError, match="is not UTF-8") as caught:
        spell_native_path(Path(os.fsdecode(b"/a/\xff")), hint="x")
    assert caught.value.hint == "x"


def test_paths_are_given_in_unicode_whatever_the_locale():
    program = (
        "import pathlib, sys\n"
        "from adrenoc.base.files.read import spell_native_path as spell\n"
        "print(ascii(spell(pathlib.Path(sys.argv[1]), hint='')))"
    )
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    told = run_program(
        [sys.executable, "-c", program, "/\u00e9"], env={**os.environ, **plain}, check=True
    )
    assert told.stdout == "'/\\xe9'\n"


def test_a_path_in_a_hint_is_no_option():
    assert quote_word(Path("-net.adrenoc")) == "./-net.adrenoc"
    assert quote_word(Path("-a b")) == "'./-a b'"
    assert quote_word(Path("a/-b")) == "a/-b"
    assert quote_word("-x") == "-x"
