"""The table of the regions that OpenCL ML computes, as the compiler estimates them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from adrenoc.bundle.manifest import RegionInfo
from adrenoc.cli import console

_HEAD = (
    "region of OpenCL ML",
    "needs",
    "operators",
    "in, out",
    "copies",
    "est. CLML",
    "+ copies",
    "textures",
    "gain",
)


def show_regions(regions: Sequence[RegionInfo]) -> None:
    """Print a row for each region; nothing where there is none."""
    if not regions:
        return
    console.blank()
    console.print_table(
        _HEAD,
        [
            (
                region.symbol,
                f"CLML {region.version}, {region.dtype}",
                operators_text(region.operators),
                f"{len(region.inputs)}, {len(region.outputs)}",
                str(region.copies),
                f"{region.clml_us} us",
                f"{region.copies_us} us",
                f"{region.texture_us} us",
                f"{region.texture_us / max(region.clml_us + region.copies_us, 1):.2f} x",
            )
            for region in regions
        ],
        right=("copies", "est. CLML", "+ copies", "textures", "gain"),
    )
    console.print_fields([("times", "estimates of the compiler, for this target")])


def operators_text(names: tuple[str, ...]) -> str:
    """Count each kind, the most frequent first: `nn.conv2d+add x12, reshape`."""
    counts = Counter(names).most_common()
    return ", ".join(name if count == 1 else f"{name} x{count}" for name, count in counts)
