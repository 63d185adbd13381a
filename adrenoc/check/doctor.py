"""Look over an installation: what works, what is missing, and how to mend it."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from adrenoc.base.errors import AdrenocError, DependencyError
from adrenoc.base.host.extras import pip_install
from adrenoc.device.adb import list_devices as list_phones
from adrenoc.native.android.runtime_toolchain import find_ndk, why_no_ndk

OLDEST_PYTHON = (3, 10)
_PINNED = ("apache-tvm", "apache-tvm-ffi")
_ADB_SECONDS = 5.0
_COMPILERS = ("c++", "g++", "clang++")


@dataclass(frozen=True, kw_only=True)
class CheckedItem:
    """One thing that was looked at.

    `state` is `ok`, `missing` (only what `needed_for` names does not work) or `broken` (nothing
    works until it is mended); `fix` is the command to type, empty when all is well.
    """

    subject: str
    state: str
    seen: str
    needed_for: str
    fix: str = ""


def examine() -> tuple[CheckedItem, ...]:
    """Look at everything that adrenoc uses; never fails, whatever is wrong."""
    findings = [_python(), *_pins(), _tvm_loads(), _compiler(), _linker(), *_references()]
    findings += [_ndk(), _builders(), *_phones()]
    if all(finding.state != "broken" for finding in findings):
        findings += _opencl()
    return tuple(findings)


def _python() -> CheckedItem:
    good = sys.version_info >= OLDEST_PYTHON and sys.platform == "linux"
    return CheckedItem(
        subject="Python",
        state="ok" if good else "broken",
        seen=f"{platform.python_version()} on {sys.platform} {platform.machine()}",
        needed_for="everything",
        fix="" if good else "use Python 3.10 to 3.13 on Linux",
    )


def _pins() -> list[CheckedItem]:
    """TVM and its FFI have to be exactly the versions that adrenoc asks for."""
    asked = {
        name: spec.partition("==")[2].split(";")[0].strip()
        for spec in _requirements()
        for name in _PINNED
        if spec.partition("==")[0].strip() == name
    }
    findings = []
    for name in _PINNED:
        seen, wanted = _version(name), asked.get(name, "")
        good = bool(seen) and (not wanted or seen == wanted)
        findings.append(
            CheckedItem(
                subject=name,
                state="ok" if good else "broken",
                seen=(seen or "not installed") + ("" if good else f", expected {wanted}"),
                needed_for="everything",
                fix="" if good else f"pip install {name}=={wanted}" if wanted else "",
            )
        )
    return findings


def _tvm_loads() -> CheckedItem:
    needed_for = "compile, run"
    if importlib.util.find_spec("tvm") is None:
        return CheckedItem(
            subject="TVM loads",
            state="broken",
            seen="no module tvm",
            needed_for=needed_for,
            fix="pip install --force-reinstall adrenoc",
        )
    try:
        import tvm

        absent = [
            kind
            for kind in ("llvm", "opencl")
            if tvm.get_global_func(f"target.build.{kind}", allow_missing=True) is None
        ]
    except (ImportError, OSError, RuntimeError) as error:
        return CheckedItem(
            subject="TVM loads",
            state="broken",
            seen=str(error).strip().splitlines()[-1],
            needed_for=needed_for,
            fix="pip install --force-reinstall apache-tvm apache-tvm-ffi",
        )
    return CheckedItem(
        subject="TVM loads",
        state="broken" if absent else "ok",
        seen=f"no code generator for {', '.join(absent)}" if absent else "with LLVM and OpenCL",
        needed_for=needed_for,
        fix="pip install --force-reinstall apache-tvm" if absent else "",
    )


def _compiler() -> CheckedItem:
    found = next((path for name in _COMPILERS if (path := shutil.which(name))), None)
    return CheckedItem(
        subject="C++ compiler",
        state="ok" if found else "missing",
        seen=found or f"none of {', '.join(_COMPILERS)} on the PATH",
        needed_for="run (the OpenCL runtime is built once)",
        fix="" if found else "apt-get install g++",
    )


def _linker() -> CheckedItem:
    from adrenoc.native.android.link import find_linker

    def look() -> str:
        linker = find_linker(host=False)
        return f"{linker.version} ({linker.origin})"

    return _try("linker for Android", "compile --device adreno", look)


def _ndk() -> CheckedItem:
    from adrenoc.native.android.runtime_wheel import look_at_wheel

    def look() -> str:
        ndk = find_ndk()
        if ndk is None:
            held, wrong = look_at_wheel()
            if held and not wrong:
                return f"none, and phones need none: adrenoc-runtime brings {', '.join(held)}"
            raise DependencyError(
                why_no_ndk() + (f"; adrenoc-runtime is not taken: {wrong}" if wrong else ""),
                hint="set ANDROID_NDK_HOME (https://developer.android.com/ndk/downloads)",
            )
        return f"{ndk.revision} at {ndk.folder} ({ndk.origin})"

    return _try("Android NDK", "runtime build for phones", look)


def _builders() -> CheckedItem:
    beside = str(Path(sys.executable).parent)
    absent = [
        name
        for name in ("cmake", "ninja")
        if not (shutil.which(name) or shutil.which(name, path=beside))
    ]
    return CheckedItem(
        subject="CMake and Ninja",
        state="missing" if absent else "ok",
        seen=f"no {' and no '.join(absent)} on the PATH" if absent else "both are there",
        needed_for="runtime build",
        fix=f"pip install {' '.join(absent)}" if absent else "",
    )


def _phones() -> list[CheckedItem]:
    """Return what is to say of adb, and of each phone that it lists."""
    needed_for = "run --on adb, device list"
    try:
        phones = list_phones(timeout_s=_ADB_SECONDS)
    except AdrenocError as error:
        return [_trouble("adb", needed_for, error)]
    if not phones:
        return [_ok("adb", needed_for, "it answers; no phone is connected")]
    return [
        CheckedItem(
            subject=f"phone {phone.serial}",
            state="missing" if phone.trouble else "ok",
            seen=phone.trouble or phone.title,
            needed_for=needed_for,
            fix="adrenoc device list shows its state" if phone.trouble else "",
        )
        for phone in phones
    ]


def _references() -> list[CheckedItem]:
    return [
        CheckedItem(
            subject=title,
            state="ok" if importlib.util.find_spec(module) else "missing",
            seen=(_version(package) or "not installed") + (_saturates() if own else ""),
            needed_for=f"run --check {example}",
            fix="" if importlib.util.find_spec(module) else pip_install("check"),
        )
        for title, module, package, example, own in (
            ("onnxruntime", "onnxruntime", "onnxruntime", "MODEL.onnx", True),
            ("LiteRT", "ai_edge_litert", "ai-edge-litert", "MODEL.tflite", False),
        )
    ]


def _saturates() -> str:
    """Return what is to be said of onnxruntime's products of bytes on this CPU."""
    try:
        from adrenoc.base.host.onnx_runtime import runtime_errors
        from adrenoc.importers.onnx.session import saturates

        wrong = saturates()
    except ImportError:
        return ""
    except runtime_errors() as error:
        return f"; it computes nothing: {str(error).strip().splitlines()[-1]}"
    if not wrong:
        return ""
    return "; its products of uint8 by int8 saturate, as this CPU has no VNNI: ours are exact"


def _opencl() -> list[CheckedItem]:
    """Return one finding for each OpenCL device, or one that says why there is none."""
    from adrenoc.device.opencl import list_devices

    needed_for = "run"
    try:
        devices = list_devices()
    except AdrenocError as error:
        return [_trouble("OpenCL", needed_for, error)]
    if not devices:
        return [
            CheckedItem(
                subject="OpenCL",
                state="missing",
                seen="no device",
                needed_for=needed_for,
                fix=pip_install("opencl"),
            )
        ]
    findings = []
    for number, facts in enumerate(devices):
        images = facts["images"]
        if images["supported"]:
            has = f"images to {images['max_width']} x {images['max_height']}"
        else:
            has = "no images"
        findings.append(
            CheckedItem(
                subject=f"OpenCL device {number}",
                state="ok" if images["supported"] else "missing",
                seen=f"{facts['name']}: {has}, {'fp16' if facts['fp16'] else 'no fp16'}",
                needed_for=needed_for,
                fix="" if images["supported"] else pip_install("opencl"),
            )
        )
    return findings


def _ok(subject: str, needed_for: str, seen: str) -> CheckedItem:
    return CheckedItem(subject=subject, state="ok", seen=seen, needed_for=needed_for)


def _try(subject: str, needed_for: str, look: Callable[[], str]) -> CheckedItem:
    try:
        return _ok(subject, needed_for, look())
    except AdrenocError as error:
        return _trouble(subject, needed_for, error)


def _trouble(subject: str, needed_for: str, error: AdrenocError) -> CheckedItem:
    return CheckedItem(
        subject=subject, state="missing", seen=error.message, needed_for=needed_for, fix=error.hint
    )


def _requirements() -> list[str]:
    try:
        return requires("adrenoc") or []
    except PackageNotFoundError:  # run from a source tree
        return []


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
