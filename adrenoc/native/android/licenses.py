"""LICENSE and NOTICE of a built runtime: of what was compiled into it, not of what lies around.

The build tells which files it read.  Each lies in the folder of a known component, or belongs to
the compiler and its C library; a file of anybody else ends the build, so that no code gets into an
app under terms that nobody has looked at.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from adrenoc.base.errors import LinkError

LICENSE, NOTICE = "LICENSE", "NOTICE"
_APACHE = "Apache-2.0"
# What files of projects of the Apache Software Foundation begin with.
_ASF_HEADER = "Licensed to the Apache Software Foundation (ASF)"
_HEADER_BYTES = 2000
_END_OF_TERMS = "END OF TERMS AND CONDITIONS"


@dataclass(frozen=True, kw_only=True)
class Component:
    """A project whose code is in the runtime: its files lie in `folders`. `license_file` and
    `notice_file` are its own; `copyright` is for one without a notice."""

    name: str
    folders: tuple[Path, ...]
    license_file: Path
    notice_file: Path | None = None
    copyright: str = ""
    has_asf_headers: bool = True


def components(tvm: Path, ffi: Path) -> tuple[Component, ...]:
    """Return what the packages `tvm` and `tvm_ffi` ship, as far as a runtime may hold it."""
    return (
        Component(
            name=f"Apache TVM {version('apache-tvm')}",
            folders=(tvm / "include" / "tvm", tvm / "src"),
            license_file=tvm / "LICENSE",
            notice_file=tvm / "NOTICE",
        ),
        Component(
            name=f"Apache TVM FFI {version('apache-tvm-ffi')}",
            folders=(ffi / "include" / "tvm", ffi / "src"),
            license_file=_find_in_package("apache-tvm-ffi", LICENSE),
            notice_file=_find_in_package("apache-tvm-ffi", NOTICE),
        ),
        Component(
            name="DLPack",
            folders=(ffi / "include" / "dlpack",),
            license_file=_find_in_package("apache-tvm-ffi", LICENSE),
            copyright="Copyright (c) 2017 by Contributors",
            has_asf_headers=False,
        ),
    )


def find_used(
    read: Iterable[Path], known: Sequence[Component], *, packages: Sequence[Path]
) -> tuple[Component, ...]:
    """Return the components of which files were read; `packages` are the folders that only they may
    be in.

    Raises:
        LinkError: a file of the packages is of no known component, or of other terms than it.
    """
    used = set()
    for path in sorted(set(read)):
        if not any(path.is_relative_to(package) for package in packages):
            continue  # ours, or the compiler's
        owner = next((c for c in known if any(path.is_relative_to(f) for f in c.folders)), None)
        if owner is None or (owner.has_asf_headers and not _has_asf_header(path)):
            raise LinkError(
                f"the runtime would hold {path}, and nobody has looked at the license of that",
                hint="pip install the versions of apache-tvm and apache-tvm-ffi that adrenoc asks "
                "for",
            )
        used.add(owner.name)
    return tuple(c for c in known if c.name in used)


def license_text(used: Sequence[Component]) -> str:
    """Return the terms of the whole, which are those of all parts. Raises LinkError where a
    component has other terms."""
    terms = {component.name: _terms(component.license_file) for component in used}
    texts = {re.sub(r"\s+", " ", text) for text in terms.values()}
    if len(texts) != 1 or "Apache License Version 2.0" not in next(iter(texts)):
        raise LinkError(
            f"{' and '.join(terms)} are not all under the {_APACHE} license that this version of "
            "adrenoc knows them by",
            hint="pip install the versions of apache-tvm and apache-tvm-ffi that adrenoc asks for",
        )
    return next(iter(terms.values()))


def notice_text(used: Sequence[Component], *, version: str, cxx_library: str) -> str:
    """Return what has to be said of the parts, and of the C++ library that was linked in."""
    lines = [
        f"adrenoc runtime {version}",
        f"License: {_APACHE}, see {LICENSE}.",
        "",
        "The libraries and programs beside this file hold code of:",
    ]
    for component in used:
        lines += ["", f"{component.name} ({_APACHE})"]
        notice = component.copyright
        if component.notice_file is not None:
            notice = component.notice_file.read_text(encoding="utf-8").strip()
        lines += [f"    {line}".rstrip() for line in notice.splitlines()]
    lines += ["", cxx_library or "The C++ library is not among them: the system's is used.", ""]
    return "\n".join(lines)


def _terms(path: Path) -> str:
    """Return a license's text without the advice on how to apply it and what follows that."""
    text = path.read_text(encoding="utf-8")
    terms, end, _ = text.partition(_END_OF_TERMS)
    return terms + end + "\n"


def _has_asf_header(path: Path) -> bool:
    with path.open("rb") as stream:
        head = stream.read(_HEADER_BYTES).decode("utf-8", "replace")
    # Comments wrap, and their lines begin with marks.
    return _ASF_HEADER in re.sub(r"[\s*/#]+", " ", head)


def _find_in_package(name: str, file: str) -> Path:
    from importlib.metadata import files

    for entry in files(name) or ():
        if entry.name == file and "dist-info" in str(entry):
            return Path(str(entry.locate()))
    raise LinkError(
        f"the Python package {name} came without its {file}", hint=f"pip install {name} again"
    )
