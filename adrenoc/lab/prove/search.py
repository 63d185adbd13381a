"""Look for what helps where a device is wrong: simpler forms, tried on some of the cases.

Simpler forms of a case that goes wrong: what a driver may have to do without, cheapest first.

A form is a quirk.  What helps is found by compiling the case for the target with that quirk more.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from adrenoc.base.errors import TargetError
from adrenoc.bundle.manifest import KernelInfo
from adrenoc.device.compiled_for import adreno_number
from adrenoc.device.fit import local_bytes
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.kernels.families.shared.operator import Kind
from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.prove.case import Case
from adrenoc.lab.prove.examine import (
    ExaminedSuite,
    Finding,
    SuiteBench,
    right_titles,
    spread_sample,
)
from adrenoc.lab.prove.suite import MEMORIES, Suite, part_of
from adrenoc.target.avoid import DOT_PRODUCTS, FUSIONS, HALF_DENORMALS, NATIVE_FUNCTIONS, OVERRIDES
from adrenoc.target.device_report import (
    FORMAT,
    DeviceReport,
    ReportedDevice,
    ReportedSuites,
    apply_report,
)
from adrenoc.target.gpu import Quirk
from adrenoc.target.target import Target

MANY_THREADS, FEW_THREADS = (256, 128), (64, 32, 16, 8)
"""The threads a group that a device may take at most; a listed Adreno has waves of 64 or more."""
FEW_BYTES = (8192, 2048)
"""The bytes of local memory that a group may share at most; every kernel does with the last."""
NEED_LOCAL = ("append_rows", "cached_attention", "join_parts", "recurrent", "step_attention")
"""The operators whose kernels all share local memory: without it they are refused."""
NARROW = 4096
"""The texels a side that every image may have."""
_LIGHT = (Kind.POOL, Kind.REDUCTION, Kind.SOFTMAX, Kind.NORM, Kind.ATTENTION)
"""What costs little as a plain loop nest, or as its parts."""
_MADE_BY_FUSION = ("separable_conv2d", "expand_depthwise_conv2d", "attention")

Applies = Callable[[Case, Suite], bool]


@dataclass(frozen=True, kw_only=True)
class QuirkForm:
    """A way to do without something; `of` makes its quirk for a case and the kernels of that.

    It makes none where that would change nothing.
    """

    applies: Applies
    of: Callable[[Case, Sequence[KernelInfo]], Quirk | None]
    is_broad: bool = False
    """Whether it changes all kernels, which may help what goes wrong in company alone."""


def quirk(text: str, **fields: object) -> Quirk:
    """Return a quirk whose name and source are not known yet."""
    return Quirk(name="", text=text, source="", **fields)  # type: ignore[arg-type]


def _avoid_form(text: str, word: str, applies: Applies) -> QuirkForm:
    def find_quirk(case: Case, _kernels: Sequence[KernelInfo]) -> Quirk | None:
        named = word.format(family=case.family, fusion=case.fusion)
        return quirk(text.format(family=case.family), avoid=(named,))

    return QuirkForm(applies=applies, of=find_quirk, is_broad=word in OVERRIDES)


def _other_groups(_case: Case, kernels: Sequence[KernelInfo]) -> Quirk | None:
    groups = {k.work_group for k in kernels if len(k.work_group) == 3}
    shapes = tuple(sorted((x, y, z) for x, y, z in groups if x * y * z > 1))
    if not shapes:
        return None
    return quirk("These work-groups give wrong results.", banned_work_groups=shapes)


def _few_threads_form(most: int) -> QuirkForm:
    below = most + 1
    few = quirk(f"Work-groups of {below} threads or more fail.", work_group_items_below=below)

    def find_quirk(_case: Case, kernels: Sequence[KernelInfo]) -> Quirk | None:
        # What goes wrong in company may do so by the groups of others: that is tried once.
        return (
            few
            if most == FEW_THREADS[0] or any(math.prod(k.work_group) > most for k in kernels)
            else None
        )

    return QuirkForm(applies=_always, of=find_quirk, is_broad=True)


def _few_bytes_form(most: int) -> QuirkForm:
    below = most + 1
    few = quirk(f"Kernels that share {below} bytes or more fail.", local_bytes_below=below)

    def find_quirk(_case: Case, kernels: Sequence[KernelInfo]) -> Quirk | None:
        return few if any(local_bytes(kernel.source) > most for kernel in kernels) else None

    return QuirkForm(applies=_always, of=find_quirk)


def _no_local(_case: Case, kernels: Sequence[KernelInfo]) -> Quirk | None:
    text = "Kernels whose threads wait for each other, to share local memory, are wrong."
    none = quirk(text, local_bytes_below=1)
    return none if any(local_bytes(kernel.source) for kernel in kernels) else None


def _exact_functions(_case: Case, kernels: Sequence[KernelInfo]) -> Quirk | None:
    text = "The GPU's own exponential or reciprocal is too coarse."
    exact = quirk(text, avoid=(NATIVE_FUNCTIONS,))
    return exact if any("native_" in kernel.source for kernel in kernels) else None


def told_limits(device: Device, target: Target) -> list[Quirk]:
    """Return what the device says that it takes, where that is less than the target has."""
    limits, said = target.limits, "by what it says"
    threads, local = device.max_work_group_size, device.local_memory_bytes
    side = min(device.image_width, device.image_height)
    found = []
    if 0 < threads < limits.max_work_group_size:
        text = f"The device takes {threads} threads a work-group, {said}."
        found.append(quirk(text, work_group_items_below=threads + 1))
    told = device.max_work_item_sizes
    if any(seen < most for seen, most in zip(told, limits.group_sides, strict=bool(told))):
        shown = " x ".join(map(str, told))
        text = f"The device takes work-groups of {shown} at most a side, {said}."
        found.append(quirk(text, work_item_sizes=told))
    if 0 < side < min(limits.image2d_max_width_texels, limits.image2d_max_height_texels):
        text = f"The device takes images of {side} texels a side, {said}."
        found.append(quirk(text, image_extent_below=side + 1))
    if 0 < local < limits.local_mem_bytes:
        text = f"The device has {local} bytes of local memory, {said}."
        found.append(quirk(text, local_bytes_below=local + 1))
    return found


def _narrow(_case: Case, _kernels: Sequence[KernelInfo]) -> Quirk:
    below = NARROW + 1
    return quirk(f"Images of {below} texels or more a side fail.", image_extent_below=below)


def that_compiles(suite: Suite, target: Target) -> Suite:
    """Return the suite without what is refused on a target that has no local memory."""
    if target.limits.local_mem_bytes:
        return suite
    return replace(suite, cases=tuple(c for c in suite.cases if c.family not in NEED_LOCAL))


def _always(_case: Case, _suite: Suite) -> bool:
    return True


def _has_textures(_case: Case, suite: Suite) -> bool:
    return suite.memory == "textures"


def _is_light(case: Case, _suite: Suite) -> bool:
    operator = OPERATORS[case.family]
    return case.family not in _MADE_BY_FUSION and operator.kind in _LIGHT


LESS_MEMORY = tuple(map(_few_bytes_form, FEW_BYTES))
"""What goes first where a driver says that resources ran out: it bounds kernels that the suite does
not have, too."""
FORMS: tuple[QuirkForm, ...] = (
    _avoid_form(
        "Halves below 6.1e-5 are taken for zero.",
        HALF_DENORMALS,
        lambda case, suite: case.feature == HALF_DENORMALS and suite.precision != "fp32",
    ),
    QuirkForm(
        applies=lambda _, suite: suite.precision != "fp32", of=_exact_functions, is_broad=True
    ),
    _avoid_form(
        "{family} is wrong where it is fused so.",
        "fusion:{fusion}",
        lambda case, _: case.fusion in FUSIONS,
    ),
    _avoid_form(
        "The kernel of {family} is wrong.",
        "operator:{family}",
        lambda case, _: case.family in _MADE_BY_FUSION,
    ),
    _avoid_form(
        "Winograd's algorithm goes wrong.", "winograd", lambda case, _: case.fusion == "winograd"
    ),
    # A bound holds for groups that the suite does not have: one that costs little goes first.
    *map(_few_threads_form, MANY_THREADS),
    QuirkForm(applies=_always, of=_other_groups),
    *map(_few_threads_form, FEW_THREADS),
    *LESS_MEMORY,
    _avoid_form("Dot products are wrong.", DOT_PRODUCTS, lambda case, _: bool(case.kernel)),
    QuirkForm(applies=lambda case, _: case.family not in NEED_LOCAL, of=_no_local),
    _avoid_form("The kernel of {family} is wrong.", "operator:{family}", _is_light),
    _avoid_form(
        "Half arithmetic is wrong.", "half-arithmetic", lambda _, suite: suite.precision == "fp16"
    ),
    QuirkForm(applies=_has_textures, of=_narrow),
    _avoid_form("Textures give wrong values.", "textures", _has_textures),
    _avoid_form(
        "Halves are stored or read wrongly.",
        "half-storage",
        lambda _, suite: suite.precision != "fp32",
    ),
    _avoid_form(
        "The kernel of {family} is wrong.",
        "operator:{family}",
        lambda case, _: bool(OPERATORS[case.family].relax),
    ),
)
"""Simpler forms in the order in which they are tried: by what they cost a network."""


RESOURCES = "CL_OUT_OF_RESOURCES"
SAMPLE = 4
"""The cases of a suite that forms are tried on at a time."""

Say = Callable[[str, str], None]


@dataclass(kw_only=True)
class QuirkSearch:
    """What was found so far.  `end` is when to stop, by `time.monotonic`."""

    bench: SuiteBench
    device: Device
    base: Target
    folder: Path
    say: Say
    end: float
    quirks: list[Quirk] = field(default_factory=list)
    helped: dict[str, list[Quirk]] = field(default_factory=dict)
    """Case -> the quirks that were found for it."""
    hopeless: set[tuple[str, str]] = field(default_factory=set)
    """(suite, case) that nothing helps."""

    @property
    def is_over(self) -> bool:
        """Whether the time is spent."""
        return time.monotonic() > self.end

    def target(self, *more: Quirk) -> Target:
        """Return the target without what was found so far, and without `more`."""
        report = empty_report(self.device, name_quirks((*self.quirks, *more), self.device))
        return apply_report(self.base, report, Path("device.json"))

    def find_help(self, suite: Suite, findings: Sequence[Finding], examined: ExaminedSuite) -> None:
        """Try forms on some of the cases that go wrong, and keep what helps."""
        sample, known = set(spread_sample(findings, SAMPLE)), len(self.quirks)
        # What is right by itself goes wrong in company: then all others have to be there.  What is
        # right there, too, when it runs again, says nothing of any form.
        shaky = self._right(part_of(suite, sample))
        passing = shaky & self._right(suite) if shaky else set()
        for titles, tried in ((sample - shaky, part_of), (shaky - passing, _whole)):
            short = all(RESOURCES in f.text for f in findings if f.title in titles)
            forms = (*LESS_MEMORY, *FORMS) if short else FORMS
            left = self._try_forms(suite, titles, tried, examined, forms)
            left |= passing
            if len(self.quirks) > known:
                continue  # with what was found others may be helped, too
            for title in sorted(left):
                told = "the time is spent" if self.is_over else "nothing helps"
                self.say(title, told)
                # Buffers were among what was tried.
                self.hopeless |= {(replace(suite, memory=m).name, title) for m in MEMORIES}

    def _try_forms(
        self,
        suite: Suite,
        titles: set[str],
        tried: Callable[[Suite, set[str]], Suite],
        examined: ExaminedSuite,
        forms: Sequence[QuirkForm],
    ) -> set[str]:
        """Keep what helps; the cases that nothing did."""
        left, cases = set(titles), {case.title: case for case in suite.cases}
        for form in forms:
            asked = {t for t in left if form.applies(cases[t], suite)}
            if tried is _whole and not form.is_broad:
                continue
            for quirk in _quirks_of(form, [cases[t] for t in sorted(asked)], examined):
                if not asked or quirk in self.quirks or self.is_over:
                    continue
                helped = asked & self._right(tried(suite, asked), quirk)
                if not helped:
                    continue
                self.say(quirk.text, f"helps {', '.join(sorted(helped))}")
                self.quirks.append(quirk)
                for title in helped:
                    self.helped.setdefault(title, []).append(quirk)
                left -= helped
                asked -= helped
        return left

    def _right(self, suite: Suite, *more: Quirk) -> set[str]:
        """Return the cases that are right with what was found so far, and without `more`."""
        try:
            target = self.target(*more)
        except TargetError:  # a quirk that no target can hold
            return set()
        return right_titles(self.bench, suite, target, self.folder)


def _whole(suite: Suite, _titles: set[str]) -> Suite:
    return suite


def _quirks_of(form: QuirkForm, cases: list[Case], examined: ExaminedSuite) -> list[Quirk]:
    """Return the form's quirk of each case, each once."""
    made = (form.of(case, _kernels_of(case, examined)) for case in cases)
    return list(dict.fromkeys(quirk for quirk in made if quirk is not None))


def _kernels_of(case: Case, examined: ExaminedSuite) -> list[KernelInfo]:
    """Return the kernels that compute a case, by the names of their tensors."""
    made = examined.made
    prefix = next(name for name, title in made.of_case.items() if title == case.title)
    prefix = prefix.rpartition("_")[0]
    names = {launch.kernel for launch in made.bundle.launches() if launch.node.startswith(prefix)}
    return [kernel for kernel in made.bundle.kernels() if kernel.name in names]


def name_quirks(quirks: list[Quirk] | tuple[Quirk, ...], device: Device) -> tuple[Quirk, ...]:
    """Quirks with names and their source."""
    source = f"adrenoc device verify on {device.with_driver}"
    return tuple(
        replace(quirk, name=f"verified-{number}", source=source)
        for number, quirk in enumerate(quirks, 1)
    )


def empty_report(device: Device, quirks: tuple[Quirk, ...]) -> DeviceReport:
    """Return a report of nothing but quirks."""
    return DeviceReport(
        format=FORMAT,
        device=ReportedDevice(
            name=device.name, driver=device.driver, gpu=adreno_number(device.facts)
        ),
        date=str(datetime.datetime.now(datetime.timezone.utc).date()),
        suites=ReportedSuites(names=(), cases=0, kernels=0, launches=0),
        is_right=False,
        quirks=quirks,
    )
