"""What a device or its driver said, as an error that says what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adrenoc.base.errors import DeviceError, DeviceMemoryError
from adrenoc.device.fit import SMALLER_GROUPS
from adrenoc.device.place import Place

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
def diagnose(place: Place) -> Iterator[None]:
    """Ask the device why, where what it said of a failure may mean one of several things.

    Raises:
        DiagnosedError: in place of what the runtime raised.
    """
    try:
        yield
    except (RuntimeError, ValueError, MemoryError) as error:
        said = str(error)
        if _ANYTHING not in said or any(code in said for code in _NO_MEMORY):
            raise
        try:
            ask = place.function("adrenoc.opencl.diagnose")
            told = {} if ask is None else json.loads(ask(place.number))
        except (RuntimeError, ValueError):  # the device, or the line to it, is gone
            raise error from None
        raise DiagnosedError(said, told) from error


def device_failure(
    said: str, *, where: str, diagnosis: dict[str, Any] | None = None
) -> DeviceError:
    """The error for what the OpenCL runtime raised; `where` names device and bundle.

    `diagnosis` is what `adrenoc.opencl.diagnose` answered afterwards.
    """
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
    """The first line that says something: what a server sends begins with where it was raised."""
    lines = said.strip().splitlines()
    return next((line.strip() for line in lines if not _NOISE.match(line)), "no message")
