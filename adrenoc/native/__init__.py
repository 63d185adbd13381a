"""The OpenCL runtime for TVM: builds it when it is first needed, and loads it.

TVM's wheel brings no OpenCL runtime.  The C++ sources beside this file are one; they need a C++17
compiler and nothing else, and libOpenCL is opened only when a device is first asked for.

    from adrenoc import native
    native.use_software_device()   # only to run on the CPU: must come before the first OpenCL call
    native.load()                  # from now on tvm.opencl(0) and modules of kind "opencl" work

`adrenoc.native.opencl` then tells of devices, memory and kernel times.

Tensors in textures: `tvm.runtime.empty((layers, rows, columns, 4), "float16", tvm.opencl(0),
mem_scope="global.texture")`; host data is copied to and from them densely, row-major.
"""

import ctypes
import os
import sys
from pathlib import Path

from adrenoc.base.errors import DependencyError
from adrenoc.base.files.read import OTHER_CACHE_FOLDER, cache_folder, spell_native_path
from adrenoc.base.text.spelling import quote_word
from adrenoc.native.compile_plugin import build

__all__ = ["build", "load", "use_software_device"]

# What the CPU driver needs before it can be opened: the packages install these into the
# environment's lib folder, where the dynamic loader does not look.
_SOFTWARE_LIBRARIES = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so", "libtbb.so.12")

# Held for the life of the process: TVM keeps pointers into the library.
_loaded: list[ctypes.CDLL] = []


def load() -> None:
    """Give TVM an OpenCL runtime: ours, unless it already has one.

    May be called any number of times. The first call on a machine compiles the library, which takes
    some ten seconds; the result is cached. Raises DependencyError where there is no C++ compiler,
    or TVM is missing; ToolError where the compiler failed; OptionError where TVM cannot open the
    cache folder's path.
    """
    import tvm  # noqa: F401  (loads the libraries that ours is linked with)
    import tvm_ffi

    if tvm_ffi.get_global_func("device_api.opencl", allow_missing=True) is not None:
        return
    library = build()
    try:
        _loaded.append(ctypes.CDLL(str(library)))
    except OSError as error:
        raise DependencyError(
            f"the OpenCL runtime {library} cannot be loaded: {error}",
            hint=f"rm {quote_word(library)} and run again, which builds it anew",
        ) from error
    # Made on the first tuning run; nothing lies there else.
    folder = spell_native_path(cache_folder() / "clml", hint=OTHER_CACHE_FOLDER)
    tvm_ffi.get_global_func("adrenoc.clml.set_cache_folder")(folder)


def use_software_device() -> bool:
    """Let OpenCL run on the CPU by Intel's driver, if its packages are installed.

    Must be called before the first OpenCL call of the process. Returns False, and changes nothing,
    where the packages are not installed: then OpenCL uses what the system has. Raises
    DependencyError where an OpenCL library is already in use, or the packages are incomplete.
    """
    if not _software_driver().exists() or not _software_opencl().exists():
        return False
    load()
    import tvm_ffi

    set_library = tvm_ffi.get_global_func("adrenoc.opencl.set_library", allow_missing=True)
    if set_library is None:
        return False  # TVM has an OpenCL runtime of its own, which finds its devices itself
    opencl = open_software_driver()
    try:
        set_library(opencl)
    except RuntimeError as error:
        raise DependencyError(
            f"the software OpenCL device cannot be chosen any more: {error}",
            hint="choose the device before anything uses OpenCL",
        ) from error
    return True


def open_software_driver() -> str:
    """Put Intel's driver into the reach of this process; returns the OpenCL library that finds it.

    That is empty, and nothing changes, where its packages are not installed. Raises DependencyError
    where the packages are incomplete.
    """
    driver, opencl = _software_driver(), _software_opencl()
    if not (driver.exists() and opencl.exists()):
        return ""
    for name in _SOFTWARE_LIBRARIES:
        try:
            _loaded.append(ctypes.CDLL(str(driver.with_name(name)), mode=ctypes.RTLD_GLOBAL))
        except OSError as error:
            raise DependencyError(
                f"the software OpenCL device is incomplete: {error}",
                hint="pip install --force-reinstall intel-opencl-rt intel-cmplr-lib-rt",
            ) from error
    # The driver list that the packages install names a folder that does not exist.
    others = os.environ.get("OCL_ICD_FILENAMES", "").split(os.pathsep)
    drivers = [str(driver), *(name for name in others if name not in ("", str(driver)))]
    os.environ["OCL_ICD_FILENAMES"] = os.pathsep.join(drivers)
    # One work item at a time: our kernels are made of vectors of four already.  Packing work items
    # on top runs MobileNetV2 no faster and takes 3.5 times as long to build a kernel.
    os.environ.setdefault("CL_CONFIG_CPU_VECTORIZER_MODE", "1")
    return str(opencl)


def _software_driver() -> Path:
    return Path(sys.prefix) / "lib" / "libintelocl.so"


def _software_opencl() -> Path:
    return Path(sys.prefix) / "lib" / "libOpenCL.so.1"
