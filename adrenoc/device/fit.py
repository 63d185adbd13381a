"""Whether a bundle, a runtime and a device fit together: looked at before anything runs."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adrenoc.base.errors import BundleError, DeviceError, InputError
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.manifest import KernelInfo, Manifest, TensorSpec

if TYPE_CHECKING:
    import numpy as np

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
    """Refuse inputs that do not fit the model.

    Raises:
        InputError: an input is missing, unknown, or of another shape or dtype.
    """
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

    `stamp` is what `adrenoc.runtime.version` answers: "0.1.0 tvm-0.27.0.post1 ...".

    Raises:
        BundleError: the versions differ.
    """
    seen = next((word[4:] for word in stamp.split() if word.startswith("tvm-0")), "")
    wanted = bundle.manifest.versions.get("apache-tvm", "")
    if seen and wanted and seen != wanted:
        raise BundleError(
            f"{bundle.path} was compiled with TVM {wanted}, but {where} runs TVM {seen}",
            hint="install the same adrenoc on both sides, or compile the model again",
        )


def check_device(bundle: Bundle, facts: Mapping[str, Any], *, where: str) -> None:
    """Refuse a device that lacks what the kernels of the bundle ask for.

    `facts` are of `adrenoc.native.opencl.devices`.

    Raises:
        DeviceError: naming everything that is missing.
    """
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
    """What a device lacks of what the kernels of a bundle ask for, a sentence each."""
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
    """Kernels with the half type, where that is not already said of all of them."""
    if facts["fp16"] or manifest.options.values.get("compute_dtype") == "float16":
        return []
    names = [kernel.name for kernel in kernels if needs_half_type(kernel.source)]
    if not names:
        return []
    named = list_first(names, most=3)
    return [f"it has no cl_khr_fp16, and {named} read or write halves in buffers"]


def needs_half_type(source: str) -> bool:
    """Whether OpenCL C computes with halves, as TVM's printer says above it."""
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
    """What the work-group of a kernel shares, by the arrays that its OpenCL C declares."""
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
