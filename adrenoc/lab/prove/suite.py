"""A suite: cases as one bundle, with inputs, and what a right device gives for them.

Bundles come from the compile cache, and references lie beside it: both are made once.

A case that goes wrong has simpler forms: what a driver may have to do without, cheapest first.  A
form is a quirk.  What helps is found by compiling the case for the target with that quirk more.
"""

import hashlib
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from adrenoc.base.files.outputs import cache_errors, write_atomically
from adrenoc.base.files.read import cache_folder
from adrenoc.base.reporter import SilentReporter
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.bundle.manifest import KernelInfo
from adrenoc.check.reference import run_reference
from adrenoc.compile.make import make_bundle
from adrenoc.device.fit import local_bytes
from adrenoc.ir.options import CompileOptions, resolve_options
from adrenoc.kernels.codegen.opencl_source import START_CONSTANTS, START_MATRICES
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.kernels.families.shared.operator import Kind
from adrenoc.lab.calibrate.measure import DeviceFacts
from adrenoc.lab.net import Net
from adrenoc.lab.prove.cases import Case, add_to
from adrenoc.lab.prove.cases.conv import CONV_CASES, PRODUCT_CASES, QUANTA_CASES
from adrenoc.lab.prove.cases.maps import FOLD_CASES, MAP_CASES
from adrenoc.target.gpu import (
    DOT_PRODUCTS,
    FUSIONS,
    HALF_DENORMALS,
    NATIVE_FUNCTIONS,
    OVERRIDES,
    UNTOLD_BUILT_INS,
    Quirk,
)
from adrenoc.target.target import Target

PRECISIONS = ("mixed", "fp32", "fp16")
"""Presets, the usual one first."""
MEMORIES = ("textures", "buffers")
TOLERANCES = {"fp32": 2e-5, "mixed": 3e-3, "fp16": 8e-3}
"""The largest error of each precision, over the range of an output."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Cases in one precision and memory."""

    precision: str
    memory: str
    cases: tuple[Case, ...]

    @property
    def name(self) -> str:
        """ "mixed, textures"."""
        return f"{self.precision}, {self.memory}"


@dataclass(frozen=True, kw_only=True)
class BuiltSuite:
    """A suite as a bundle; `of_case` has the case of each output, by its title."""

    suite: Suite
    options: CompileOptions
    bundle: Bundle
    inputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    of_case: dict[str, str]

    def kernels(self) -> int:
        """Return the number of different kernels in the bundle."""
        return len(self.bundle.manifest.kernels)


def all_suites(cases: Sequence[Case], *, half_type: bool) -> tuple[Suite, ...]:
    """Return each precision of the device, in each memory: buffers of halves need their type."""
    return tuple(
        Suite(precision=precision, memory=memory, cases=tuple(cases))
        for precision in PRECISIONS
        for memory in MEMORIES
        if half_type or precision == "fp32" or (precision == "mixed" and memory == "textures")
    )


def make_suite(suite: Suite, target: Target, folder: Path) -> BuiltSuite:
    """Compile a suite and compute its references; files lie in `folder`. Raises AdrenocError where
    it cannot be compiled, or the reference is not installed."""
    net = Net()
    for case in suite.cases:
        add_to(net, case)
    text = net.model()
    digest = hashlib.sha256(text).hexdigest()[:24]
    model = folder / f"suite_{digest}.onnx"
    if not model.exists():
        model.write_bytes(text)
    options = resolve_options(
        target,
        preset=suite.precision,
        command_line={
            "textures": suite.memory == "textures",
            "int8_prompts": True,
            # Each form of a kernel is to run in halves too, as between layers of a network.
            "keep_float32": HALF_DENORMALS in target.avoided,
        },
    ).options
    output = folder / f"{digest}_{target.digest()[:12]}_{options.digest()[:12]}.adrenoc"
    if not output.exists():
        make_bundle(model, target=target, options=options, output=output, reporter=SilentReporter())
    return BuiltSuite(
        suite=suite,
        options=options,
        bundle=open_bundle(output),
        inputs=net.inputs,
        expected=_references(suite, net, model, digest),
        of_case=net.of_case,
    )


def _references(suite: Suite, net: Net, model: Path, digest: str) -> dict[str, np.ndarray]:
    """Return what onnxruntime gives, kept by the digest of the model, whose data are seeded."""
    rounds = suite.precision != "fp32"
    kept = cache_folder() / "suites" / f"{digest}{'_half' if rounds else ''}.npz"
    if kept.exists():
        try:
            with np.load(kept, allow_pickle=False) as held:
                found = {name: held[name] for name in held.files}
            if set(found) == set(net.outputs):
                return found
        except (OSError, ValueError, EOFError):
            pass  # what is damaged is made again
    inputs = net.inputs
    if rounds:
        inputs = {k: v.astype(np.float16).astype(np.float32) for k, v in inputs.items()}
    made = run_reference(model, inputs, threads=1)
    stream = io.BytesIO()
    np.savez(stream, **made)  # type: ignore[arg-type]
    with cache_errors(kept.parent):
        kept.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(kept, stream.getvalue())
    return made


def part_of(suite: Suite, titles: set[str]) -> Suite:
    """Return the suite of some of its cases."""
    return replace(suite, cases=tuple(case for case in suite.cases if case.title in titles))


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
    """A way to do without something; `of` makes its quirk for a case and the kernels of that. It
    makes none where that would change nothing."""

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
    text = "These work-groups give wrong results."
    return quirk(text, banned_work_groups=shapes) if shapes else None


def _form_of_kernels(
    made: Quirk,
    holds: Callable[[KernelInfo], bool],
    applies: Applies = lambda case, suite: True,
    *,
    is_broad: bool = False,
) -> QuirkForm:
    """Return the form of a quirk that would change kernels of which something holds."""

    def find_quirk(_case: Case, kernels: Sequence[KernelInfo]) -> Quirk | None:
        return made if any(map(holds, kernels)) else None

    return QuirkForm(applies=applies, of=find_quirk, is_broad=is_broad)


def _few_threads_form(most: int) -> QuirkForm:
    below = most + 1
    few = quirk(f"Work-groups of {below} threads or more fail.", work_group_items_below=below)
    # What goes wrong in company may do so by the groups of others: that is tried once.
    if most == FEW_THREADS[0]:
        return QuirkForm(applies=_always, of=lambda _case, _kernels: few, is_broad=True)
    return _form_of_kernels(few, lambda k: math.prod(k.work_group) > most, is_broad=True)


def _few_bytes_form(most: int) -> QuirkForm:
    text, below = f"Kernels that share {most + 1} bytes or more fail.", most + 1
    few = quirk(text, local_bytes_below=below)
    return _form_of_kernels(few, lambda kernel: local_bytes(kernel.source) > most)


def told_limits(device: DeviceFacts, target: Target) -> list[Quirk]:
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


def that_compiles(suite: Suite, target: Target) -> Suite:
    """Return the suite without what is refused on a target that has no local memory."""
    if target.limits.local_mem_bytes:
        return suite
    return replace(suite, cases=tuple(c for c in suite.cases if c.family not in NEED_LOCAL))


def _always(_case: Case, _suite: Suite) -> bool:
    return True


def _has_textures(_case: Case, suite: Suite) -> bool:
    return suite.memory == "textures"


def _has_halves(_case: Case, suite: Suite) -> bool:
    return suite.precision != "fp32"


def _computes_halves(_case: Case, suite: Suite) -> bool:
    return suite.precision == "fp16"


_NARROW = quirk(
    f"Images of {NARROW + 1} texels or more a side fail.", image_extent_below=NARROW + 1
)
LESS_MEMORY = tuple(map(_few_bytes_form, FEW_BYTES))
"""What goes first where a driver says that resources ran out: it bounds kernels that the suite does
not have, too."""
FORMS: tuple[QuirkForm, ...] = (
    _avoid_form(
        "Halves below 6.1e-5 are taken for zero.",
        HALF_DENORMALS,
        lambda case, suite: case.feature == HALF_DENORMALS and suite.precision != "fp32",
    ),
    _form_of_kernels(
        quirk("The GPU's own exponential or reciprocal is too coarse.", avoid=(NATIVE_FUNCTIONS,)),
        lambda kernel: "native_" in kernel.source,
        _has_halves,
        is_broad=True,
    ),
    _form_of_kernels(
        quirk(
            "Products by the constant file or matrix units are wrong, though the trials are right.",
            avoid=(UNTOLD_BUILT_INS,),
        ),
        lambda kernel: any(w in kernel.source for w in (START_CONSTANTS, START_MATRICES)),
        _computes_halves,
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
    _form_of_kernels(
        quirk(
            "Kernels whose threads wait for each other, to share local memory, are wrong.",
            local_bytes_below=1,
        ),
        lambda kernel: bool(local_bytes(kernel.source)),
        lambda case, _: case.family not in NEED_LOCAL,
    ),
    _avoid_form(
        "The kernel of {family} is wrong.",
        "operator:{family}",
        lambda case, _: (
            case.family not in _MADE_BY_FUSION and OPERATORS[case.family].kind in _LIGHT
        ),
    ),
    _avoid_form("Half arithmetic is wrong.", "half-arithmetic", _computes_halves),
    QuirkForm(applies=_has_textures, of=lambda _case, _kernels: _NARROW),
    _avoid_form("Textures give wrong values.", "textures", _has_textures),
    _avoid_form("Halves are stored or read wrongly.", "half-storage", _has_halves),
    _avoid_form(
        "The kernel of {family} is wrong.",
        "operator:{family}",
        lambda case, _: bool(OPERATORS[case.family].relax),
    ),
)
"""Simpler forms in the order in which they are tried: by what they cost a network."""


CASES: tuple[Case, ...] = (*MAP_CASES, *CONV_CASES, *PRODUCT_CASES, *FOLD_CASES, *QUANTA_CASES)

NOT_IN_MODELS = {"cumprod": "onnxruntime knows no running product; its kernel is that of `cumsum`"}
"""Operators that no case can have, and why."""
