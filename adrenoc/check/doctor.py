"""Look over an installation: what works, what is missing, and how to mend it."""

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
    """One thing that was looked at. `state` is `ok`, `missing` (only what `needed_for` names does
    not work) or `broken` (nothing works until it is mended); `fix` is the command to type, empty
    when all is well."""

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


def _item(
    subject: str, good: object, seen: str, needed_for: str, fix: str, *, bad: str = "missing"
) -> CheckedItem:
    """Return a finding that is `ok`, or `bad` with what mends it."""
    state, fix = ("ok", "") if good else (bad, fix)
    return CheckedItem(subject=subject, state=state, seen=seen, needed_for=needed_for, fix=fix)


def _python() -> CheckedItem:
    good = sys.version_info >= OLDEST_PYTHON and sys.platform == "linux"
    seen = f"{platform.python_version()} on {sys.platform} {platform.machine()}"
    fix = "use Python 3.10 to 3.13 on Linux"
    return _item("Python", good, seen, "everything", fix, bad="broken")


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
        told = (seen or "not installed") + ("" if good else f", expected {wanted}")
        fix = f"pip install {name}=={wanted}" if wanted else ""
        findings.append(_item(name, good, told, "everything", fix, bad="broken"))
    return findings


def _tvm_loads() -> CheckedItem:
    def tell(good: bool, seen: str, packages: str) -> CheckedItem:
        fix = f"pip install --force-reinstall {packages}"
        return _item("TVM loads", good, seen, "compile, run", fix, bad="broken")

    if importlib.util.find_spec("tvm") is None:
        return tell(False, "no module tvm", "adrenoc")
    try:
        import tvm

        absent = [
            kind
            for kind in ("llvm", "opencl")
            if tvm.get_global_func(f"target.build.{kind}", allow_missing=True) is None
        ]
    except (ImportError, OSError, RuntimeError) as error:
        return tell(False, str(error).strip().splitlines()[-1], "apache-tvm apache-tvm-ffi")
    seen = f"no code generator for {', '.join(absent)}" if absent else "with LLVM and OpenCL"
    return tell(not absent, seen, "apache-tvm")


def _compiler() -> CheckedItem:
    found = next((path for name in _COMPILERS if (path := shutil.which(name))), None)
    seen = found or f"none of {', '.join(_COMPILERS)} on the PATH"
    needed_for = "run (the OpenCL runtime is built once)"
    return _item("C++ compiler", found, seen, needed_for, "apt-get install g++")


def _linker() -> CheckedItem:
    from adrenoc.native.android.link import find_linker

    def look() -> str:
        linker = find_linker(host=False)
        return f"{linker.version} ({linker.origin})"

    return _try("linker for Android", "compile --device adreno", look)


def _ndk() -> CheckedItem:
    from adrenoc.native.android.runtime_build import look_at_wheel

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
    seen = f"no {' and no '.join(absent)} on the PATH" if absent else "both are there"
    fix = f"pip install {' '.join(absent)}"
    return _item("CMake and Ninja", not absent, seen, "runtime build", fix)


def _phones() -> list[CheckedItem]:
    needed_for, fix = "run --on adb, device list", "adrenoc device list shows its state"
    try:
        phones = list_phones(timeout_s=_ADB_SECONDS)
    except AdrenocError as error:
        return [_item("adb", False, error.message, needed_for, error.hint)]
    if not phones:
        return [_item("adb", True, "it answers; no phone is connected", needed_for, "")]
    return [
        _item(f"phone {p.serial}", not p.trouble, p.trouble or p.title, needed_for, fix)
        for p in phones
    ]


def _references() -> list[CheckedItem]:
    findings = []
    for title, module, package, example, more in (
        ("onnxruntime", "onnxruntime", "onnxruntime", "MODEL.onnx", _saturates()),
        ("LiteRT", "ai_edge_litert", "ai-edge-litert", "MODEL.tflite", ""),
    ):
        good, seen = importlib.util.find_spec(module), _version(package) or "not installed"
        needed_for = f"run --check {example}"
        findings.append(_item(title, good, seen + more, needed_for, pip_install("check")))
    return findings


def _saturates() -> str:
    """Return what is to be said of onnxruntime's products of bytes on this CPU."""
    try:
        from adrenoc.base.host.extras import runtime_errors
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
    from adrenoc.device.place import list_devices

    fix = pip_install("opencl")
    try:
        devices = list_devices()
    except AdrenocError as error:
        return [_item("OpenCL", False, error.message, "run", error.hint)]
    if not devices:
        return [_item("OpenCL", False, "no device", "run", fix)]
    findings = []
    for number, facts in enumerate(devices):
        images, good = facts["images"], facts["images"]["supported"]
        has = f"images to {images['max_width']} x {images['max_height']}" if good else "no images"
        seen = f"{facts['name']}: {has}, {'fp16' if facts['fp16'] else 'no fp16'}"
        findings.append(_item(f"OpenCL device {number}", good, seen, "run", fix))
    return findings


def _try(subject: str, needed_for: str, look: Callable[[], str]) -> CheckedItem:
    try:
        return _item(subject, True, look(), needed_for, "")
    except AdrenocError as error:
        return _item(subject, False, error.message, needed_for, error.hint)


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
