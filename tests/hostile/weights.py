"""Weights that lie in other files, or say so."""

from collections.abc import Iterator
from pathlib import Path

from onnx import TensorProto, helper

from tests.hostile.case import ENDED, Case, Make
from tests.models import graph


def cases() -> Iterator[Case]:
    def model(entries: dict[str, str], count: int = 1, extent: int = 4) -> bytes:
        names = [f"w{i}" for i in range(count)]
        proto = graph([helper.make_node("Sum", ["x", *names], ["y"])], {"x": (extent,)}, ["y"])
        for name in names:
            tensor = TensorProto(name=name, data_type=1, dims=(extent,))
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
            proto.graph.initializer.append(tensor)
        return proto.SerializeToString()

    def beside(entries: dict[str, str], make: Make, **more: int) -> Make:
        def both(folder: Path) -> None:
            (folder / "m.onnx").write_bytes(model(entries, **more))
            make(folder)

        return both

    def zeros(name: str, count: int = 16) -> Make:
        return lambda folder: (folder / name).write_bytes(bytes(count))

    def hard(folder: Path) -> None:
        (folder / "w.bin").hardlink_to(folder / "m.onnx")

    def many(folder: Path) -> None:
        with (folder / "w.bin").open("wb") as file:
            for _ in range(32):
                file.write(b"\1" * (1 << 20))

    for name, make in {
        "below a link to the root": beside(
            {"location": "d/etc/hostname"}, lambda f: (f / "d").symlink_to("/")
        ),
        "below a link to here, 200 times": beside(
            {"location": "d/" * 200 + "w.bin"},
            lambda f: ((f / "d").symlink_to("."), zeros("w.bin")(f)),
        ),
        "below a folder that links to itself": beside(
            {"location": "d/w.bin"}, lambda f: (f / "d").symlink_to("d")
        ),
        "the model by another name": beside({"location": "w.bin"}, hard),
        "a checksum of escapes": beside(
            {"location": "w.bin", "checksum": "\x1b[2J"}, zeros("w.bin")
        ),
        "an unknown key": beside({"location": "w.bin", "\x1b[2J": "x"}, zeros("w.bin")),
        "no place": beside({"offset": "0"}, zeros("w.bin")),
        "an address": beside({"location": "file:///etc/passwd"}, zeros("w.bin")),
        "a place of Windows": beside({"location": "..\\w.bin"}, zeros("w.bin")),
        "a place of escapes": beside({"location": "\x1b]0;x\x07"}, zeros("w.bin")),
        "8 GiB by the same 32 MiB": beside({"location": "w.bin"}, many, count=256, extent=8 << 20),
        "30,000 files that are not there": beside({"location": "no.bin"}, zeros("x"), count=30_000),
    }.items():
        yield Case(
            family="weights elsewhere",
            name=name,
            make=make,
            command=("check", "m.onnx"),
            codes=ENDED,
        )
