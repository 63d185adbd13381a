"""Bundles for several GPUs as an asset pack, of which Play gives each phone the part for its GPU.

FOLDER/adrenoc_models/                                  a module for Gradle
    build.gradle.kts
    src/main/assets/NAME#group_adreno_750/NAME.adrenoc.tar     what an Adreno 750 gets
    src/main/assets/NAME#group_other/NAME.adrenoc.tar          what all others get: the whole bundle
FOLDER/device_targeting_configuration.xml               which chips carry which GPU

Play goes by the chip that a phone says it has (Android 12 and newer); a chip that no group names
gets the whole bundle, of which the runtime picks by what the driver says.  An app asks for
`NAME/NAME.adrenoc.tar`: the build takes what follows `#` away.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.decision import Decision
from adrenoc.base.errors import BundleError
from adrenoc.base.files.outputs import output_error, scratch_folder_for, write_atomically
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.editions import Edition, extract_edition, read_editions
from adrenoc.bundle.write_bundle import write_app_tar
from adrenoc.native.android.package.aar import AppModel, Packed, name_models
from adrenoc.target.target import list_targets

PACK = "adrenoc_models"
TARGETING = "device_targeting_configuration.xml"
_OTHER = "other"
# As chips call themselves: both names of the maker were seen on phones.
_MAKERS = ("QTI", "Qualcomm")
_CHIP = re.compile(r"(sm|sdm|sc|qcs)\d+[a-z]*")
_GRADLE = """plugins {
    id("com.android.asset-pack")
}

assetPack {
    packName.set("%s")
    dynamicDelivery {
        deliveryType.set("install-time")
    }
}
"""


@dataclass(frozen=True, kw_only=True)
class SplitPack:
    """What was written, and which parts no group could be made of."""

    packed: Packed
    decisions: tuple[Decision, ...]


def write_asset_pack(bundles: Sequence[Bundle], output: Path) -> SplitPack:
    """Write an asset pack of bundles for several GPUs, and its targeting, into the folder `output`.

    Raises BundleError where one is for one device alone, or not for Android, or is given twice;
    OutputError where `output` cannot be written.
    """
    for bundle in bundles:
        if not read_editions(bundle):
            raise BundleError(
                f"{bundle.path} has kernels for one device, expected one for several to split",
                hint="adrenoc compile MODEL --device adreno:660,adreno:750",
            )
    chips = _find_chips()
    models = name_models(bundles)
    listed = [e for bundle in bundles for e in read_editions(bundle) if e.gpu]
    groups = {e.gpu: chips[e.gpu] for e in listed if not e.driver and chips.get(e.gpu)}
    content: list[tuple[str, int]] = []
    try:
        output.mkdir(parents=True, exist_ok=True)
        texts = {TARGETING: _write_targeting(groups), f"{PACK}/build.gradle.kts": _GRADLE % PACK}
        for path, text in texts.items():
            content.append(_write(output, path, text.encode()))
        for model in models:
            content += _write_model(model, groups, output)
    except OSError as error:
        raise output_error(output, error) from error
    left = {e.title: e for e in listed if e.gpu not in groups or e.driver}
    return SplitPack(
        packed=Packed(path=output, files=tuple(content)),
        decisions=tuple(_tell_left(edition) for edition in left.values()),
    )


def _tell_left(edition: Edition) -> Decision:
    why = "no chip is listed that carries it"
    if edition.driver:
        why = "Play knows no drivers"
    return Decision(
        subject=edition.title,
        taken="no group of its own",
        reason=f"{why}: such phones get the whole bundle, and the runtime picks",
        stage="package",
    )


def _find_chips() -> dict[str, tuple[str, ...]]:
    """Return the chips that carry each GPU, as they call themselves."""
    found: dict[str, list[str]] = {}
    for target in list_targets():
        if target.soc is not None and _CHIP.fullmatch(target.soc.name):
            found.setdefault(target.soc.gpu, []).append(target.soc.name.upper())
    return {gpu: tuple(sorted(names)) for gpu, names in found.items()}


def _write_targeting(groups: dict[str, tuple[str, ...]]) -> str:
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        "<config:device-targeting-config",
        '    xmlns:config="http://schemas.android.com/apk/config">',
    ]
    for gpu, chips in sorted(groups.items()):
        lines += [
            f'    <config:device-group name="{_group(gpu)}">',
            "        <config:device-selector>",
        ]
        lines += [
            f'            <config:system-on-chip manufacturer="{maker}" model="{chip}"/>'
            for chip in chips
            for maker in _MAKERS
        ]
        lines += ["        </config:device-selector>", "    </config:device-group>"]
    return "\n".join([*lines, "</config:device-targeting-config>"]) + "\n"


def _group(gpu: str) -> str:
    return f"adreno_{gpu}"


def _write_model(
    model: AppModel, groups: dict[str, tuple[str, ...]], output: Path
) -> list[tuple[str, int]]:
    """Return the part of each group, and the whole bundle for all others."""
    bundle, name = model.bundle, model.asset.partition(".adrenoc")[0]
    written = []
    with scratch_folder_for(output / PACK) as scratch:
        for edition in read_editions(bundle):
            if edition.gpu and (edition.gpu not in groups or edition.driver):
                continue
            root = bundle.root
            if edition.gpu:
                root = scratch / edition.gpu
                extract_edition(bundle, edition, root)
            group = _group(edition.gpu) if edition.gpu else _OTHER
            tar = scratch / "bundle.tar"
            write_app_tar(root, tar, name=bundle.manifest.name)
            place = f"{PACK}/src/main/assets/{name}#group_{group}/{model.asset}"
            written.append(_write(output, place, tar.read_bytes()))
            tar.unlink()
    return written


def _write(output: Path, path: str, content: bytes) -> tuple[str, int]:
    place = output / path
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, content)
    return path, len(content)
