"""JUnit's XML, which build servers read: suites of cases, any name shown as a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from adrenoc.base.text.spelling import printable


@dataclass(frozen=True, kw_only=True)
class JunitCase:
    """One thing that was tried; `failure` or `skipped` says why it did not pass."""

    group: str
    name: str
    took_s: float = 0.0
    failure: str = ""
    skipped: str = ""
    figures: str = ""


@dataclass(frozen=True, kw_only=True)
class JunitSuite:
    """Cases that belong together."""

    name: str
    cases: tuple[JunitCase, ...]


def show_suites(name: str, suites: Sequence[JunitSuite]) -> str:
    """Return the whole file."""
    root = ElementTree.Element("testsuites", name=name)
    for suite in suites:
        element = ElementTree.SubElement(
            root,
            "testsuite",
            name=printable(suite.name),
            tests=str(len(suite.cases)),
            failures=str(sum(bool(case.failure) for case in suite.cases)),
            skipped=str(sum(bool(case.skipped) for case in suite.cases)),
            time=f"{sum(case.took_s for case in suite.cases):.3f}",
        )
        for case in suite.cases:
            _add(element, case)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ElementTree.Element, case: JunitCase) -> None:
    element = ElementTree.SubElement(
        suite,
        "testcase",
        classname=printable(case.group),
        name=printable(case.name),
        time=f"{case.took_s:.3f}",
    )
    for kind, message in (("failure", case.failure), ("skipped", case.skipped)):
        if message:
            ElementTree.SubElement(element, kind, message=printable(message))
    if case.figures:
        out = ElementTree.SubElement(element, "system-out")
        out.text = printable(case.figures)
