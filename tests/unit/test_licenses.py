"""LICENSE and NOTICE tell of what was compiled, and of nothing else."""

from pathlib import Path

import pytest

from adrenoc.base.errors import LinkError
from adrenoc.native.android.licenses import (
    Component,
    components,
    find_used,
    license_text,
    notice_text,
)

ASF = "/*\n * Licensed to the Apache Software Foundation (ASF) under one\n */\n"


@pytest.fixture
def known(tmp_path: Path) -> tuple[Component, ...]:
    terms = "Apache License\nVersion 2.0\nEND OF TERMS AND CONDITIONS\nadvice"
    (tmp_path / "LICENSE").write_text(terms)
    (tmp_path / "NOTICE").write_text("One\nCopyright of One\n")
    for name in ("one/a.h", "one/b.h", "two/c.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(ASF if "b.h" not in name else "/* of somebody */")
    license_file = tmp_path / "LICENSE"
    return (
        Component(
            name="One",
            folders=(tmp_path / "one",),
            license_file=license_file,
            notice_file=tmp_path / "NOTICE",
        ),
        Component(
            name="Two",
            folders=(tmp_path / "two",),
            license_file=license_file,
            copyright="Copyright of Two",
        ),
    )


def test_only_what_was_read_is_named(known: tuple[Component, ...], tmp_path: Path) -> None:
    read = [tmp_path / "one" / "a.h", Path("/usr/include/stdio.h")]
    used = find_used(read, known, packages=(tmp_path,))
    assert [component.name for component in used] == ["One"]
    said = notice_text(used, version="1.2", cxx_library="")
    assert "    Copyright of One\n" in said and "Two" not in said
    both = find_used([*read, tmp_path / "two" / "c.h"], known, packages=(tmp_path,))
    assert "    Copyright of Two\n" in notice_text(both, version="1.2", cxx_library="libc++")
    assert license_text(both).endswith("END OF TERMS AND CONDITIONS\n")


@pytest.mark.parametrize("name", ["one/b.h", "three/d.h"])
def test_code_of_unknown_terms_ends_the_build(
    known: tuple[Component, ...], tmp_path: Path, name: str
) -> None:
    """Other terms within a known folder, and a folder that nobody knows."""
    with pytest.raises(LinkError, match=f"would hold .*{name}, and nobody has looked"):
        find_used([tmp_path / name], known, packages=(tmp_path,))


def test_other_terms_of_a_component_are_refused(
    known: tuple[Component, ...], tmp_path: Path
) -> None:
    (tmp_path / "LICENSE").write_text("MIT License\nEND OF TERMS AND CONDITIONS")
    with pytest.raises(LinkError, match="One and Two are not all under the Apache"):
        license_text(known)


def test_the_packages_of_tvm_have_their_texts() -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    ffi = Path(tvm_ffi.__file__).parent
    known = components(ffi.parent / "tvm", ffi)
    header = ffi / "include" / "dlpack" / "dlpack.h"
    used = find_used([header], known, packages=(ffi,))
    assert [component.name for component in used] == ["DLPack"]
    assert used[0].copyright.removeprefix("Copyright (c) 2017 ") in header.read_text("utf-8")
    assert "Version 2.0, January 2004" in license_text(known)
    assert "Copyright 2024-present The Apache Software Foundation" in notice_text(
        known, version="1", cxx_library=""
    )
