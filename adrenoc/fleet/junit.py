"""The table of a fleet as JUnit's XML, which build servers read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from adrenoc.fleet.table import Line
from adrenoc.text.printable import printable

_SKIPPED = ("left", "waiting")


def junit_xml(lines: Sequence[Line]) -> str:
    """A suite for each device, a case for each job; jobs of a device that left are skipped."""
    root = ElementTree.Element("testsuites", name="adrenoc fleet")
    for device in dict.fromkeys(line.device for line in lines):
        own = [line for line in lines if line.device == device]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=printable(device or "here"),
            tests=str(len(own)),
            failures=str(sum(line.is_bad for line in own)),
            skipped=str(sum(line.status in _SKIPPED for line in own)),
            time=f"{sum(line.took_s or 0.0 for line in own):.3f}",
        )
        for line in own:
            _case(suite, line)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, line: Line) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=printable(line.gpu or line.target or line.device or "adrenoc"),
        name=printable(f"{line.deed} {Path(line.model).name}".strip()),
        time=f"{line.took_s or 0.0:.3f}",
    )
    message = printable(f"{line.status}: {line.note}" if line.note else line.status)
    if line.is_bad:
        ElementTree.SubElement(case, "failure", message=message)
    elif line.status in _SKIPPED:
        ElementTree.SubElement(case, "skipped", message=message)
    if line.p50_ms is not None:
        out = ElementTree.SubElement(case, "system-out")
        out.text = printable(", ".join(f"{k}={v}" for k, v in _figures(line).items()))


def _figures(line: Line) -> dict[str, object]:
    names = ("driver", "p50_ms", "p90_ms", "cold_ms", "error", "launches", "memory_bytes")
    values = {name: getattr(line, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
