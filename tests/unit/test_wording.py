"""Words that messages are made of: `a` and `an` fit what follows, and are not left to chance."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import adrenoc

PACKAGE = Path(adrenoc.__file__).parent
SOURCES = [
    path
    for suffix in ("py", "cc", "h")
    for path in sorted(PACKAGE.rglob(f"*.{suffix}"))
    if not {"build", "cytoscape"} & set(path.parts)
]

# "a one", "a European", "a use": a vowel that sounds like a consonant.  In code `a` is a name.
A_VOWEL = re.compile(r"\b[Aa] (?!one|once|uni|use|eu|or\b|in\b|if\b|is\b|and\b|of\b)[aeio][a-z]+ ")
AN_CONSONANT = re.compile(r"\b[Aa]n [bcdfgjkmpqtvwyz][a-z]+\b")
COMPOSED = re.compile(r"""\b[Aa]n? "(?: *<<| *\+)""")


@pytest.mark.parametrize("rule", [A_VOWEL, AN_CONSONANT, COMPOSED], ids=["a", "an", "composed"])
def test_articles_fit(rule: re.Pattern[str]) -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if rule.search(line) and not re.search(r"\bfor a in\b|enumerate|zip\(|== a |copy a ", line)
    ]
    assert not wrong, "\n".join(wrong)
