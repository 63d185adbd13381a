"""Folders of a kind of output that is made up for tests of writing."""

from pathlib import Path

from adrenoc.base.files import outputs

KIND = outputs.make_listed_kind("thing")
MARKER = KIND.marker


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def make_bundle(path: Path, content: str) -> None:
    with outputs.write_folder_atomically(path, KIND) as folder:
        (folder / "content").write_text(content)
        (folder / "kernels").mkdir()
        (folder / "kernels" / "conv.cl").write_text("kernel")
        outputs.write_list(folder, KIND)


def content_of(path: Path) -> str:
    return (path / "content").read_text()
