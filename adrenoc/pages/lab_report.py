"""Read a report of adrenoc-lab.apk: what `device.json` takes of it, and the page of the app.

The app (`scripts/lab`) has no compiler.  What helps against a wrong driver is known where another
of its suites, which does without halves or textures, is right.
"""

from __future__ import annotations

import datetime
import json
import statistics
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from adrenoc.base.errors import InputError
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.base.text.report import read_style
from adrenoc.base.text.spelling import printable
from adrenoc.lab.calibrate.measure import plain
from adrenoc.target.device_set import (
    FORMAT,
    DeviceReport,
    ReportedDevice,
    ReportedFinding,
    ReportedSuites,
    load_listed,
)
from adrenoc.target.gpu import Quirk

FORM = 1
_AVOIDED = {
    "half-arithmetic": "Half arithmetic is wrong.",
    "textures": "Textures give wrong values.",
    "half-storage": "Halves are stored or read wrongly.",
}
"""What a suite may do without, by what it costs a network, and what a quirk says of it."""
_MOST_BYTES = 4 << 20
_MOST_SPREAD = 1.5
"""How much longer than the shortest the longest round of a figure may be."""
PAGE = Path(__file__).with_name("lab_report.html")
"""Of the app and of what it shared; holds "DATA" and the place of the style."""


@dataclass(frozen=True, kw_only=True)
class LabSuite:
    """What came of one suite: right, wrong, or failed as `text` says."""

    suite: str
    status: str
    cases: int
    kernels: int
    launches: int
    findings: tuple[ReportedFinding, ...] = ()
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class LabProbe:
    """The microseconds that a launch more takes, in each round, and the bytes that it moves."""

    probe: str
    status: str
    text: str = ""
    us: tuple[float, ...] = ()
    bytes: int = 0

    @property
    def middle_us(self) -> float | None:
        """The median; None where no round says anything, or rounds say too different things."""
        if not self.us or min(self.us) <= 0 or max(self.us) > _MOST_SPREAD * min(self.us):
            return None
        return statistics.median(self.us)

    def __str__(self) -> str:
        rounds = ", ".join(f"{us:.3g}" for us in self.us)
        told = f"{self.middle_us:.3g} us" if self.middle_us else "no figure"
        return f"{told} a launch ({rounds} us in rounds)" if self.us else self.text


@dataclass(frozen=True, kw_only=True)
class LabNetwork:
    """What came of one network; figures where it is right, `text` where it is not."""

    network: str
    status: str
    text: str = ""
    p50_ms: float = 0.0
    p90_ms: float = 0.0
    runs: int = 0
    rounds_ms: tuple[float, ...] = ()
    init_ms: float = 0.0
    memory_bytes: int = 0
    notes: str = ""

    def __str__(self) -> str:
        if not self.runs:
            return f"{self.status}: {self.text}"
        return f"{self.status}, p50 {self.p50_ms:.3g} ms, p90 {self.p90_ms:.3g} ms"


@dataclass(frozen=True, kw_only=True)
class LabDecoder:
    """What came of one language model, as `LabNetwork`; `tokens` are those that were compared."""

    decoder: str
    status: str
    text: str = ""
    tokens: int = 0
    prompt_tokens: int = 0
    prompt_ms: float = 0.0
    token_ms: float = 0.0
    init_ms: float = 0.0
    memory_bytes: int = 0
    notes: str = ""

    def __str__(self) -> str:
        if not self.tokens:
            return f"{self.status}: {self.text}"
        told = f"a prompt of {self.prompt_tokens} tokens {self.prompt_ms:.3g} ms"
        return f"{self.status}, {told}, a token {self.token_ms:.3g} ms"


@dataclass(frozen=True, kw_only=True)
class LabDevice:
    """What the device says of itself, or why none was reached."""

    facts: dict[str, Any] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class LabReport:
    """A whole report; `is_whole`: nothing was left out."""

    adrenoc_lab: int
    runtime: str
    system: str
    device: LabDevice
    is_whole: bool
    suites: tuple[LabSuite, ...] = ()
    probes: tuple[LabProbe, ...] = ()
    networks: tuple[LabNetwork, ...] = ()
    decoders: tuple[LabDecoder, ...] = ()
    beside: tuple[dict[str, Any], ...] = ()

    def page(self, now: str) -> str:
        """Return the page, under a sentence."""
        data = json.dumps({"now": now, "report": asdict(self)}).replace("<", "\\u003c")
        return page_template().replace('"DATA"', data)

    def verified(self, date: datetime.date) -> DeviceReport:
        """Return what it says of the driver, as `adrenoc device verify` writes it."""
        facts = self.device.facts
        findings = tuple(finding for one in self.suites for finding in one.findings)
        cases = [(one.suite, one.case) for one in findings]
        cases += [(one.suite, "") for one in self.suites if one.status == "failed"]
        # A suite says nothing of two quirks together.
        helps = [w for w in _AVOIDED if cases and all(self._helps(w, *one) for one in cases)][:1]
        return DeviceReport(
            format=FORMAT,
            device=ReportedDevice(
                name=str(facts.get("name", "")),
                driver=str(facts.get("driver", "")),
                gpu=str(facts.get("gpu", "")),
            ),
            date=str(date),
            suites=ReportedSuites(
                names=tuple(one.suite for one in self.suites),
                cases=sum(one.cases for one in self.suites),
                kernels=sum(one.kernels for one in self.suites),
                launches=sum(one.launches for one in self.suites),
            ),
            is_right=bool(self.suites) and self.is_whole and (not cases or bool(helps)),
            quirks=tuple(
                Quirk(
                    name="lab-1",
                    text=_AVOIDED[word],
                    source=f"adrenoc-lab.apk on {facts.get('name')}, driver {facts.get('driver')}",
                    avoid=(word,),
                )
                for word in helps
            ),
            findings=tuple(
                replace(finding, helps=tuple(_AVOIDED[word] for word in helps))
                for finding in findings
            ),
            failed_once=tuple(f"{one.suite}: {one.text}" for one in self.suites if one.text),
        )

    def _helps(self, word: str, suite: str, case: str) -> bool:
        """Return whether a case is right in the suite that is the same but for what is avoided;
        without a case, whether all are."""
        precision, _, memory = suite.partition(", ")
        other = {
            "half-arithmetic": f"{'mixed' if precision == 'fp16' else precision}, {memory}",
            "textures": f"{precision}, buffers",
            "half-storage": f"fp32, {memory}",
        }[word]
        found = next((one for one in self.suites if one.suite == other), None)
        if other == suite or found is None or found.status == "failed":
            return False
        return case not in {one.case for one in found.findings} if case else not found.findings

    def target_toml(self, date: datetime.date) -> str:
        """Return a target file of the figures that estimates reckon with; empty where none is."""
        figures = {}
        for probe in self.probes:
            us = probe.middle_us
            if us is not None and probe.probe == "launch":
                figures["launch_us"] = us
            elif us is not None and probe.probe == "memory" and probe.bytes > 0:
                figures["dram_gb_per_s"] = probe.bytes / us / 1e3
        device = self.verified(date).device
        source = f"adrenoc-lab.apk on {plain(device.name)}, driver {plain(device.driver)}, {date}"
        lines = [f'title = "{plain(device.name)}, as the lab app measured"']
        lines += [f'base = "{load_listed(device.gpu).name}"', "", "[sources]"]
        lines += [f'measured = "{source}"', "", "[performance]"]
        lines += [f'{k} = {{ value = {v:.4g}, source = "@measured" }}' for k, v in figures.items()]
        return "\n".join(lines) + "\n" if figures else ""


def page_template() -> str:
    """Return the page with its style; what it shows goes in place of "DATA"."""
    return PAGE.read_text("utf-8").replace("/* STYLE */", read_style())


def read_lab_report(path: Path) -> LabReport:
    """Read what the app shared. Raises InputError where it cannot be read, or is of another
    form."""

    def wrong(place: str, what: str) -> InputError:
        hint = "adrenoc-lab.apk writes such files; scripts/ci/lab_app makes it"
        return InputError(f"the report {printable(place)} {printable(what)}", hint=hint)

    try:
        plain = read_json(read_plain(path, _MOST_BYTES))
    except (OSError, ValueError) as error:
        raise wrong(str(path), f"cannot be read: {error}") from error
    report: LabReport = RecordReader(wrong, defaults=True).read(LabReport, plain, str(path))
    if report.adrenoc_lab != FORM:
        raise wrong(str(path), f"has the form {report.adrenoc_lab}, expected {FORM}")
    return report
