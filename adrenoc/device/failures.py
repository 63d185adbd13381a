"""What a device or its driver said, as an error that says what to do."""

from __future__ import annotations

import re

from adrenoc.errors import DeviceError, DeviceMemoryError

_NO_MEMORY = ("CL_MEM_OBJECT_ALLOCATION_FAILURE", "CL_OUT_OF_HOST_MEMORY", "CL_OUT_OF_RESOURCES")
_BAD_KERNEL = re.compile(r"Cannot build kernel (\S+)")
_NOISE = re.compile(r"^((\w+: )?Error caught from RPC call|Traceback|\s*File |\s*at |$)")


def device_failure(said: str, *, where: str) -> DeviceError:
    """The error for what the OpenCL runtime raised; `where` names device and bundle."""
    sentence = first_sentence(said)
    if any(code in said for code in _NO_MEMORY):
        return DeviceMemoryError(
            f"{where} has no memory left: {sentence}",
            hint="adrenoc inspect BUNDLE shows what it needs; end what else uses the GPU, or "
            "compile with --preset mixed or fp16",
        )
    kernel = _BAD_KERNEL.search(said)
    if kernel is not None:
        return DeviceError(
            f"{where}: {said.strip()}", hint=f"adrenoc inspect BUNDLE --kernel {kernel[1]}"
        )
    return DeviceError(
        f"{where} failed: {sentence}",
        hint="adrenoc doctor, or choose another device with --cl-device",
    )


def first_sentence(said: str) -> str:
    """The first line that says something: what a server sends begins with where it was raised."""
    lines = said.strip().splitlines()
    return next((line.strip() for line in lines if not _NOISE.match(line)), "no message")
