"""C and C++ compilers that tests ask once: what they made is kept for as long as tests use it."""

import hashlib
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from adrenoc.base.files.read import cache_folder, private_folder

_KEPT_S = 30 * 86400


@cache
def kept_folder(name: str) -> Path:
    """A folder for what later runs of the tests need again, less what none of a month took."""
    folder = private_folder(private_folder(cache_folder()) / name)
    for kept in folder.iterdir():
        with suppress(FileNotFoundError):  # another worker does the same
            if time.time() - kept.stat().st_mtime > _KEPT_S:
                kept.unlink()
    return folder


def compile_once(command: Sequence[object], output: Path) -> Path:
    """Run a compiler's command, which lacks its -o, or take what it once made of the same text.

    The text is what the preprocessor leaves, so that a change of any header counts.
    """
    words = [str(word) for word in command]
    known = hashlib.sha256(_ask(words[0], "--version") + _ask(*words, "-E", "-P"))
    known.update("\0".join(words).replace(str(output.parent), "").encode())
    kept = kept_folder("compiled_programs") / known.hexdigest()
    if not kept.exists():
        subprocess.run([*words, "-o", str(output)], check=True)
        made = kept.with_name(f"{kept.name}.{output.parent.name}.{time.time_ns()}")
        shutil.copy(output, made)
        made.replace(kept)
        return output
    kept.touch()
    return Path(shutil.copy(kept, output))


def _ask(*words: str) -> bytes:
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout


def compile_stub(folder: Path) -> Path:
    """Compile the OpenCL library that counts what it is called for."""
    sources = sorted((Path(__file__).parent / "native").glob("stub_*.c"))
    return compile_once(["cc", "-O1", "-shared", "-fPIC", *sources], folder / "libstub_opencl.so")


_CONSTANT = re.compile(r"^(?:static )?(?:constexpr|const) [^;=(]*?\b(k[A-Z]\w*)", re.MULTILINE)


def write_unit(path: Path, sources: Sequence[Path]) -> Path:
    """A file that includes all of them; constants that several have of their own stay apart."""
    constants = {source: set(_CONSTANT.findall(source.read_text())) for source in sources}
    shared = {
        name for name, n in Counter(n for c in constants.values() for n in c).items() if n > 1
    }
    lines = []
    for number, source in enumerate(sources):
        own = sorted(constants[source] & shared)
        lines += [f"#define {name} {name}_{number}" for name in own]
        lines += [f'#include "{source}"']
        lines += [f"#undef {name}" for name in own]
    path.write_text("\n".join(lines) + "\n")
    return path
