"""Layers of OpenCL's loader (OPENCL_LAYERS), compiled from the sources beside this file."""

import shutil
import subprocess
from pathlib import Path

_HERE = Path(__file__).parent
_RUNTIME = _HERE.parents[1] / "adrenoc" / "native" / "src"
"""Where the C++ types of OpenCL are declared."""
_COMPILERS = {".c": ("cc", "gcc", "clang"), ".cc": ("c++", "g++", "clang++")}
_STANDARDS = {".c": "-std=c11", ".cc": "-std=c++17"}
_WORDS = ("-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC")


def compile_layer(source: str, folder: Path) -> Path | None:
    """The layer of a source file, made in `folder`; None where no compiler is installed.

    Raises:
        subprocess.CalledProcessError: the compiler refused it.
    """
    path = _HERE / source
    compiler = next(filter(None, map(shutil.which, _COMPILERS[path.suffix])), None)
    if compiler is None:
        return None
    library = folder / f"lib{path.stem}.so"
    words = (_STANDARDS[path.suffix], *_WORDS, f"-I{_RUNTIME}")
    subprocess.run([compiler, *words, "-o", str(library), str(path)], check=True)
    return library
