"""Whether a bundle, a runtime and a device fit together: which edition, and why a run failed."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from adrenoc.base.decision import Decision
from adrenoc.base.errors import BundleError, DeviceError, DeviceMemoryError, InputError, TargetError
from adrenoc.base.text.spelling import list_first, quote_word
from adrenoc.bundle.buckets import COMMON, open_edition, rank_editions, read_editions
from adrenoc.bundle.bundle import TARGET, Bundle
from adrenoc.bundle.manifest import KernelInfo, Manifest, TensorSpec
from adrenoc.device.place import RunPlace
from adrenoc.device.result import Progress, RunResult
from adrenoc.ir.options import DEFAULT_PRESET, list_entered
from adrenoc.target.device_set import load_listed
from adrenoc.target.gpu_file import OwnFile, is_for_host, own_path
from adrenoc.target.target import Target, load_own_target, load_target

if TYPE_CHECKING:
    import numpy as np


# In "QUALCOMM Adreno(TM)" and "OpenCL 3.0 Adreno(TM) 750"; `Adreno 642L` too, `Adreno X1-85`, and
# Mesa's `FD750`.
_ADRENO = re.compile(r"(?:Adreno\s*(?:\(TM\))?\s*|^FD)(\d{3}[a-z]?|X\d-\d\d)\b", re.IGNORECASE)


def adreno_number(facts: Mapping[str, Any]) -> str:
    """Return the number of an Adreno GPU in what OpenCL tells of it ("750"), if it is one."""
    for key in ("name", "version"):
        found = _ADRENO.search(str(facts.get(key, "")))
        if found is not None:
            return found[1].lower()
    return ""


def target_of(bundle: Bundle) -> Target:
    """Return what a bundle was compiled for: a listed device, or the target file that lies in it.
    Raises TargetError where this version of adrenoc knows no such device, or the file is wrong;
    BundleError where the file is not there."""
    name = bundle.manifest.target.name
    path = own_path(name)
    if path is None:
        return load_target(name)
    if TARGET not in {entry.path for entry in bundle.manifest.files}:
        raise BundleError(
            f"{bundle.path} was compiled for the target file {path.name}, and holds no {TARGET}",
            hint=compile_again(bundle, quote_word(path.name)),
        )
    file = OwnFile.read(bundle.root / TARGET, name=path.name)
    return load_own_target(file, host=is_for_host(name))


def compile_again(bundle: Bundle, device: str) -> str:
    """Return the command that compiles the model of a bundle, entered as it was, for a device."""
    options = bundle.manifest.options
    words = [f"adrenoc compile {quote_word(bundle.manifest.model.file)} --device {device}"]
    if options.preset != DEFAULT_PRESET:
        words.append(f"--preset {quote_word(options.preset)}")
    entered = (options.values.get(key, ()) for key in ("shapes", "fixed", "signature"))
    return " ".join([*words, *list_entered(*entered)])


def twin_name(bundle: Bundle) -> str:
    """Return the device to compile for, so that this computer has the kernels of a bundle."""
    try:
        return target_of(bundle).host_name
    except (TargetError, BundleError):  # of another version of adrenoc
        return "host"


def other_gpu_notes(bundle: Bundle, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note where a bundle for one Adreno GPU runs on another, with what would be faster.
    Kernels are right on any device that `check_device` lets pass; their tiles are for one."""
    seen = adreno_number(facts)
    try:
        wanted = target_of(bundle).gpu.name
    except (TargetError, BundleError):  # of another version of adrenoc
        wanted = ""
    if not seen or not wanted[:1].isdigit() or wanted == seen:
        return ()
    return (
        f"the kernels were compiled for Adreno {wanted.upper()}, and this is Adreno "
        f"{seen.upper()}: {compile_again(bundle, load_listed(seen).name)} makes them for it",
    )


SMALLER_GROUPS = (
    "adrenoc device verify -o device.json, then adrenoc compile {model} --device "
    "DEVICE+device.json makes smaller work-groups"
)
"""The next command where a device takes fewer threads a group than a kernel has."""
_TEXTURE = "global.texture"
# "__local half4 shared[128];"
_SHARED = re.compile(r"__local\s+([a-z]+?)(2|3|4|8|16)?\s+\w+\s*(?:\[\s*(\d+)\s*\])?\s*;")
_ELEMENT_BYTES = {
    **{"char": 1, "uchar": 1, "short": 2, "ushort": 2, "half": 2},
    **{"int": 4, "uint": 4, "float": 4, "long": 8, "ulong": 8, "double": 8},
}
# What TVM's printer prints above a kernel with the half type, for devices without it.
_HALVES = '#error "Half precision'
# What an image kernel reads through its coordinates: shape [layers, rows, columns, 4].
_TEXTURE_RANK = 4


def check_inputs(specs: tuple[TensorSpec, ...], inputs: Mapping[str, np.ndarray]) -> None:
    """Refuse inputs that do not fit the model. Raises InputError where an input is missing,
    unknown, or of another shape or dtype."""
    wanted = [spec.name for spec in specs]
    unknown = sorted(set(inputs) - set(wanted))
    if unknown:
        raise InputError(
            f"the model has no input `{unknown[0]}`; its inputs are {', '.join(wanted)}",
            hint=f"adrenoc run BUNDLE --input {wanted[0]}=FILE",
        )
    for spec in specs:
        if spec.name not in inputs:
            raise InputError(
                f"the input `{spec.name}` is missing; "
                f"expected {_format_type(spec.shape, spec.dtype)}",
                hint=f"adrenoc run BUNDLE --input {spec.name}=FILE",
            )
        array = inputs[spec.name]
        if array.shape != spec.shape or str(array.dtype) != spec.dtype:
            raise InputError(
                f"the input `{spec.name}` is {_format_type(array.shape, str(array.dtype))}, "
                f"expected {_format_type(spec.shape, spec.dtype)}",
                hint="adrenoc inspect BUNDLE shows what the model takes",
            )


def check_version(bundle: Bundle, stamp: str, *, where: str) -> None:
    """Refuse a runtime of another TVM than the bundle was compiled with: its byte code differs.
    `stamp` is what `adrenoc.runtime.version` answers: "0.1.0 tvm-0.27.0.post1 ...". Raises
    BundleError where the versions differ."""
    seen = next((word[4:] for word in stamp.split() if word.startswith("tvm-0")), "")
    wanted = bundle.manifest.versions.get("apache-tvm", "")
    if seen and wanted and seen != wanted:
        raise BundleError(
            f"{bundle.path} was compiled with TVM {wanted}, but {where} runs TVM {seen}",
            hint="install the same adrenoc on both sides, or compile the model again",
        )


def check_device(bundle: Bundle, facts: Mapping[str, Any], *, where: str) -> None:
    """Refuse a device that lacks what the kernels of the bundle ask for. `facts` are of
    `adrenoc.native.opencl.devices`. Raises DeviceError naming everything that is missing."""
    model = shlex.quote(bundle.manifest.model.file)
    threads = _missing_threads(bundle.manifest, facts)
    if missing := list_missing(bundle, facts):
        raise DeviceError(
            f"{where} ({facts['name']}, driver {facts['driver']}) cannot run {bundle.path}: "
            + list_first(missing),
            hint=SMALLER_GROUPS.format(model=model)
            if threads
            else f"adrenoc compile {model} for this device (adrenoc targets), or choose another "
            "device with --on opencl:NAME",
        )


def list_missing(bundle: Bundle, facts: Mapping[str, Any]) -> list[str]:
    """Return what a device lacks of what the kernels of a bundle ask for, a sentence each."""
    kernels = bundle.kernels()
    return [
        *_missing_threads(bundle.manifest, facts),
        *_missing_features(bundle.manifest, facts),
        *_missing_halves(bundle.manifest, kernels, facts),
        *_missing_extents(bundle.manifest, facts),
        *_missing_local_memory(kernels, facts),
        *_missing_memory(bundle.manifest, facts),
    ]


def _missing_features(manifest: Manifest, facts: Mapping[str, Any]) -> list[str]:
    missing = []
    uses_textures = any(_TEXTURE in scope for kernel in manifest.kernels for scope in kernel.scopes)
    if uses_textures and not facts["images"]["supported"]:
        missing.append("it has no images, and the kernels use textures")
    if manifest.kernels and facts["c_version"] < 200:
        version = facts["c_version"] / 100
        missing.append(f"it compiles OpenCL C {version:.1f}, and the kernels need 2.0")
    if manifest.options.values.get("compute_dtype") == "float16" and not facts["fp16"]:
        missing.append("it has no cl_khr_fp16, and the kernels compute in half")
    return missing


def _missing_halves(
    manifest: Manifest, kernels: Sequence[KernelInfo], facts: Mapping[str, Any]
) -> list[str]:
    """Return kernels with the half type, where that is not already said of all of them."""
    if facts["fp16"] or manifest.options.values.get("compute_dtype") == "float16":
        return []
    names = [kernel.name for kernel in kernels if needs_half_type(kernel.source)]
    if not names:
        return []
    named = list_first(names, most=3)
    return [f"it has no cl_khr_fp16, and {named} read or write halves in buffers"]


def needs_half_type(source: str) -> bool:
    """Return whether OpenCL C computes with halves, as TVM's printer says above it."""
    return _HALVES in source


def _missing_threads(manifest: Manifest, facts: Mapping[str, Any]) -> list[str]:
    most = facts["limits"]["max_work_group_size"]
    sides = facts["limits"].get("max_work_item_sizes") or (most,) * 3
    missing = []
    for kernel in manifest.kernels:
        if (items := math.prod(kernel.work_group)) > most:
            missing.append(
                f"kernel {kernel.name} has work-groups of {items} work-items, it takes {most}"
            )
        elif any(side > limit for side, limit in zip(kernel.work_group, sides, strict=False)):
            shape, limit = (" x ".join(map(str, group)) for group in (kernel.work_group, sides))
            missing.append(
                f"kernel {kernel.name} has work-groups of {shape}, it takes {limit} a side"
            )
    return missing


def _missing_extents(manifest: Manifest, facts: Mapping[str, Any]) -> list[str]:
    missing: list[str] = []
    images = facts["images"]
    if not images["supported"]:
        return missing
    most = (images["max_layers"], images["max_height"], images["max_width"])
    tensors = [(f"the constant {spec.name}", spec.scope, spec.shape) for spec in manifest.params]
    tensors += [
        (f"memory slot {i}", slot.scope, slot.shape) for i, slot in enumerate(manifest.memory.slots)
    ]
    for title, scope, shape in tensors:
        if scope != _TEXTURE or len(shape) != _TEXTURE_RANK:
            continue
        if any(extent > limit for extent, limit in zip(shape[:3], most, strict=True)):
            layers, rows, columns = shape[:3]
            missing.append(
                f"{title} is an image of {columns} x {rows} texels in {layers} layers, "
                f"it has {most[2]} x {most[1]} in {most[0]}"
            )
    return missing


def _missing_local_memory(kernels: Sequence[KernelInfo], facts: Mapping[str, Any]) -> list[str]:
    there = facts["limits"]["local_memory_bytes"]
    needed = {kernel.name: local_bytes(kernel.source) for kernel in kernels}
    return [
        f"kernel {name} shares {needs} bytes in local memory, it has {there}"
        for name, needs in needed.items()
        if needs > there
    ]


def local_bytes(source: str) -> int:
    """Return what the work-group of a kernel shares, by the arrays that its OpenCL C declares."""
    return sum(
        _ELEMENT_BYTES.get(kind, 1) * {"": 1, "3": 4}.get(lanes, int(lanes or 1)) * int(count or 1)
        for kind, lanes, count in _SHARED.findall(source)
    )


def _missing_memory(manifest: Manifest, facts: Mapping[str, Any]) -> list[str]:
    needed = manifest.memory.peak_bytes
    there = facts["limits"]["global_memory_bytes"]
    if needed <= there:
        return []
    return [f"it has {there >> 20} MiB of memory, and the bundle needs {needed >> 20}"]


def _format_type(shape: tuple[int, ...], dtype: str) -> str:
    return f"{dtype} [{', '.join(str(extent) for extent in shape)}]"


AnyPlace = TypeVar("AnyPlace", bound=RunPlace)

_STAGE = "choose_edition"


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What a device runs of a bundle, and why: nothing where the bundle is for one device.
    `may_fall_back`: it holds kernels that are for any Adreno beside these."""

    bundle: Bundle
    decision: Decision | None = None
    may_fall_back: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the decision in a sentence."""
        if self.decision is None:
            return ()
        return (f"kernels for {self.decision.taken} run: {self.decision.reason}",)


def choose_edition(bundle: Bundle, facts: Mapping[str, Any], *, refused: str = "") -> Chosen:
    """Return the edition of `bundle` for the device that `facts` are of.

    That is the first whose needs the device meets, of its own GPU and driver, of its own GPU, and
    the common one; with `refused`, what the driver said of the kernels of its own, the common one.
    Raises BundleError where the bundle is damaged.
    """
    editions = read_editions(bundle)
    if not editions:
        return Chosen(bundle=bundle)
    driver = str(facts.get("driver", ""))
    ranked, why = rank_editions(editions, gpu=adreno_number(facts), driver=driver)
    if refused:
        ranked, why = ranked[-1:], f"{why}, and could not run those: {refused}"
    for edition in ranked:
        opened = open_edition(bundle, edition)
        missing = list_missing(opened, facts) if edition.folder != COMMON else []
        if missing:
            why += f"; those for {edition.title} do not fit, since {missing[0]}"
            continue
        subject = f"{facts.get('name', '')} (driver {driver})"
        decision = Decision(subject=subject, taken=edition.title, reason=why, stage=_STAGE)
        may_fall_back = edition.folder != COMMON
        return Chosen(bundle=opened, decision=decision, may_fall_back=may_fall_back)
    raise ValueError("the list of editions ends with the common one")


def run_with_edition(
    bundle: Bundle,
    open_place: Callable[[], AbstractContextManager[AnyPlace]],
    run: Callable[[AnyPlace, Chosen], RunResult],
    told: Progress,
) -> RunResult:
    """Run the edition of the device at a place; where that fails, the common one, before any run.
    Raises DeviceError where the device failed with the common edition, or after it had computed."""
    chosen = Chosen(bundle=bundle)

    def attempt(refused: str = "") -> RunResult:
        nonlocal chosen
        with open_place() as place:
            chosen = choose_edition(bundle, place.facts, refused=refused)
            result = run(place, chosen)
            notes = (*chosen.notes, *result.notes)
            return replace(result, edition=chosen.decision, notes=notes)

    try:
        return attempt()
    except DeviceError as error:
        if told.first_ms is not None or not chosen.may_fall_back:
            raise
        return attempt(error.message)


# The last is what the runtime says where an allocation failed, by whatever code.
_NO_MEMORY = ("CL_MEM_OBJECT_ALLOCATION_FAILURE", "CL_OUT_OF_HOST_MEMORY", ": no room for ")
# Drivers say this of memory, of kernels that fault and of kernels that run for too long.
_ANYTHING = "CL_OUT_OF_RESOURCES"
_MEMORY_HINT = (
    "adrenoc inspect BUNDLE shows what it needs; end what else uses the GPU, or compile with "
    "--preset mixed or fp16"
)
_BAD_GROUP = re.compile(r"has a work-group of .* but .* takes at most \d+")
_BAD_KERNEL = re.compile(r"Cannot build kernel (\S+)")
_NOISE = re.compile(r"^((\w+: )?Error caught from RPC call|Traceback|\s*File |\s*at |$)")


class DiagnosedError(RuntimeError):
    """What the runtime raised, with what its device told when it was asked why."""

    def __init__(self, said: str, diagnosis: dict[str, Any]) -> None:
        super().__init__(said)
        self.diagnosis = diagnosis


@contextmanager
def diagnose(place: RunPlace) -> Iterator[None]:
    """Ask the device why, where what it said of a failure may mean one of several things. Raises
    DiagnosedError in place of what the runtime raised."""
    try:
        yield
    except (RuntimeError, ValueError, MemoryError) as error:
        said = str(error)
        if _ANYTHING not in said or any(code in said for code in _NO_MEMORY):
            raise
        try:
            told = json.loads(place.function("adrenoc.opencl.diagnose")(place.number))
        except (RuntimeError, ValueError):  # the device, or the line to it, is gone
            raise error from None
        raise DiagnosedError(said, told) from error


def device_failure(
    said: str, *, where: str, diagnosis: dict[str, Any] | None = None
) -> DeviceError:
    """Return the error for what the OpenCL runtime raised; `where` names device and bundle.
    `diagnosis` is what `adrenoc.opencl.diagnose` answered afterwards."""
    sentence = first_sentence(said)
    if any(code in said for code in _NO_MEMORY):
        return DeviceMemoryError(f"{where} has no memory left: {sentence}", hint=_MEMORY_HINT)
    if _ANYTHING in said:
        return _resources_failure(sentence, where, diagnosis or {})
    kernel = _BAD_KERNEL.search(said)
    if kernel is not None:
        return DeviceError(
            f"{where}: {said.strip()}", hint=f"adrenoc inspect BUNDLE --kernel {kernel[1]}"
        )
    if _BAD_GROUP.search(sentence):
        return DeviceError(f"{where}: {sentence}", hint=SMALLER_GROUPS.format(model="MODEL"))
    return DeviceError(
        f"{where} failed: {sentence}",
        hint="adrenoc doctor, or choose another device with --on opencl:NAME",
    )


def _resources_failure(sentence: str, where: str, diagnosis: dict[str, Any]) -> DeviceError:
    text = diagnosis.get(
        "text",
        "drivers say so of memory that ran out, and of a kernel that faulted or ran for too long",
    )
    message = f"{where} failed: {sentence}; {text}"
    if diagnosis.get("memory_short") and not diagnosis.get("refusal"):
        return DeviceMemoryError(message, hint=_MEMORY_HINT)
    if diagnosis.get("refusal"):
        hint = "run again, in a new process; if it is lost again, --check-layers MODEL names the "
        hint += "first layer that is wrong, --profile on a smaller input how long kernels run"
    else:
        hint = "adrenoc run BUNDLE --profile shows how long each kernel runs; compile for this "
        hint += "GPU (--device adreno:NNN), or with --preset mixed if memory is short"
    return DeviceError(message, hint=hint)


def first_sentence(said: str) -> str:
    """Return the first line that says something: a server begins with where it was raised."""
    lines = said.strip().splitlines()
    return next((line.strip() for line in lines if not _NOISE.match(line)), "no message")
