"""The OpenCL devices of this machine, as the native runtime sees them."""

from __future__ import annotations

import json
from typing import Any

from adrenoc.errors import DeviceError


def list_devices() -> list[dict[str, Any]]:
    """Each OpenCL device as plain data; its place in the list is its device number.

    Raises:
        DependencyError: the native runtime cannot be built or loaded.
    """
    from adrenoc import native

    native.load()
    import tvm_ffi

    found: list[dict[str, Any]] = json.loads(tvm_ffi.get_global_func("adrenoc.opencl.devices")())
    return found


def pick_device(wanted: str) -> tuple[int, dict[str, Any]]:
    """The number and the facts of the device that `wanted` names: a number or a part of its name.

    An empty `wanted` takes the first device that has images, else the first.

    Raises:
        DeviceError: there is no device, or none of that name.
    """
    devices = list_devices()
    if not devices:
        raise DeviceError(
            "there is no OpenCL device on this machine",
            hint="pip install 'adrenoc[opencl]' brings a software device; adrenoc doctor",
        )
    if not wanted:
        chosen = next((i for i, facts in enumerate(devices) if facts.get("images")), 0)
    elif wanted.isdigit():
        chosen = int(wanted)
    else:
        named = (i for i, facts in enumerate(devices) if wanted.lower() in _title(facts).lower())
        chosen = next(named, len(devices))
    if chosen >= len(devices):
        listed = ", ".join(f"{i} = {_title(facts)}" for i, facts in enumerate(devices))
        raise DeviceError(
            f"no OpenCL device `{wanted}`; there is {listed}", hint="adrenoc doctor lists them"
        )
    return chosen, devices[chosen]


def _title(facts: dict[str, Any]) -> str:
    return str(facts.get("name", "?"))
