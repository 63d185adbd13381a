"""A build as build servers read it: JUnit's XML, and annotations in GitHub's form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from adrenoc.base.text.junit import JunitCase, JunitSuite, show_suites
from adrenoc.base.text.printable import printable
from adrenoc.project.build_project import MADE, BuildResult, BundleOutcome


def build_junit(result: BuildResult) -> str:
    """Return a case for each bundle, in one suite."""
    cases = tuple(
        JunitCase(
            group=Path(one.model).name,
            name=one.name,
            took_s=one.took_s,
            failure="" if one.status == MADE else f"{one.status}: {describe(one)}",
            figures=_figures(one),
        )
        for one in result.bundles
    )
    return show_suites("adrenoc build", [JunitSuite(name="bundles", cases=cases)])


def _figures(one: BundleOutcome) -> str:
    if one.figures is None:
        return ""
    return ", ".join(f"{k}={v}" for k, v in asdict(one.figures).items() if v is not None)


def list_annotations(result: BuildResult, project: Path) -> Iterator[str]:
    """Yield a line for each bundle that did not end well."""
    for one in result.bad:
        title = _escape(f"{one.name}: {one.status}", is_property=True)
        place = _escape(str(project), is_property=True)
        yield f"::error file={place},title={title}::{_escape(describe(one))}"


def describe(one: BundleOutcome) -> str:
    """Return why a bundle did not end well."""
    return one.message or "; ".join(one.notes)


def _escape(text: str, *, is_property: bool = False) -> str:
    """Return a text that ends neither the line nor, as a property, the property."""
    shown = printable(text, lines=True).replace("\t", " ").replace("%", "%25")
    shown = shown.replace("\r", "%0D").replace("\n", "%0A")
    return shown.replace(":", "%3A").replace(",", "%2C") if is_property else shown
