"""Android archives (AAR) of the runtime, a model, or both, and asset packs of bundles for several
GPUs, of which Play gives each phone the part for its own.

Two archives with the same library, the same prefab package or the same namespace cannot be in one
app, so that an app of several models takes the runtime once, from an archive of its own, and each
model from another (`adrenoc.native.android.package.repository`).

FOLDER/adrenoc_models/                                  a module for Gradle
    build.gradle.kts
    src/main/assets/NAME#group_adreno_750/NAME.adrenoc.tar     what an Adreno 750 gets
    src/main/assets/NAME#group_other/NAME.adrenoc.tar          what all others get: the whole bundle
FOLDER/device_targeting_configuration.xml               which chips carry which GPU

Play goes by the chip that a phone says it has (Android 12 and newer); a chip that no group names
gets the whole bundle, of which the runtime picks by what the driver says. An app asks for
`NAME/NAME.adrenoc.tar`: the build takes what follows `#` away.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from xml.sax.saxutils import quoteattr

import adrenoc
from adrenoc.base.decision import Decision
from adrenoc.base.errors import BundleError, LinkError
from adrenoc.base.files.outputs import output_error, scratch_folder_for, write_atomically
from adrenoc.base.files.read import sha256_bytes
from adrenoc.base.text.names import identifier
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.buckets import Edition, extract_edition, read_editions
from adrenoc.bundle.bundle import Bundle, write_app_tar
from adrenoc.bundle.onnx_context import context_file, make_context
from adrenoc.bundle.tar import SUFFIX
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.runtime_build import (
    HEADERS,
    LIBRARY,
    LICENSE,
    NOTICE,
    PROVIDER,
    Runtime,
)
from adrenoc.native.android.runtime_toolchain import (
    ANDROID_ABIS,
    JNI_LIBRARY,
    MIN_API,
    compile_classes,
)
from adrenoc.target.target import list_targets, runs_on_android

# Machine of an ELF file -> ABI of Android.
ABIS = {machine: abi for abi, machine in ANDROID_ABIS.items()}


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A package that was written: where, and the paths in it with their bytes."""

    path: Path
    files: tuple[tuple[str, int], ...]


def abi_of(runtime: Runtime) -> str:
    """Return the ABI of Android that a runtime is for. Raises LinkError where it was not built for
    Android."""
    facts = read_elf(runtime.library)
    glibc = sorted(name for name in facts.needed if name.endswith((".so.6", ".so.2", ".so.1")))
    if facts.machine not in ABIS or glibc:
        raise LinkError(
            f"the runtime at {runtime.folder} is not for Android (it is for {facts.machine}"
            + (f" and needs {', '.join(glibc)})" if glibc else ")"),
            hint="ANDROID_NDK_HOME=PATH adrenoc runtime build --abi arm64-v8a -o DIR, then "
            "--runtime DIR",
        )
    return ABIS[facts.machine]


def copy_sample(kind: str, output: Path) -> None:
    """Copy the sample `cpp` or `android` to the folder `output`."""
    sample = Path(adrenoc.__file__).resolve().parent / "native" / "samples" / kind
    shutil.copytree(sample, output, dirs_exist_ok=True)


# Times of archives say nothing, and equal input shall give equal bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LIBRARIES = (LIBRARY, JNI_LIBRARY)
# In assets, since Android builds keep what lies in META-INF out of an app.
_NOTICES = "assets/adrenoc"
_DIGEST_LETTERS = 6

_MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<manifest xmlns:android="http://schemas.android.com/apk/res/android"
    package={namespace}>
    <uses-sdk android:minSdkVersion="{api}" />
{application}</manifest>
"""
_OPENCL = """    <application>
        <!-- Without this line Android 12 and newer hide the GPU's OpenCL from an app. -->
        <uses-native-library android:name="libOpenCL.so" android:required="false" />
        <uses-native-library android:name="libOpenCL-pixel.so" android:required="false" />
    </application>
"""
# What native code looks up by name: methods that it implements, and those that it calls.
_PROGUARD = """-keepclasseswithmembernames class org.adrenoc.Native {
    native <methods>;
}
-keep class org.adrenoc.AdrenocException {
    static org.adrenoc.AdrenocException of(int, byte[]);
}
-keep class org.adrenoc.Tensor {
    <init>(byte[], byte[], long[], long);
}
-keep interface org.adrenoc.OnToken {
    boolean onToken(long);
}
-keep interface org.adrenoc.OnPiece {
    boolean onPiece(byte[]);
}
"""
# onnxruntime-android brings no rules, and its native code looks classes up by name, too.
_ONNXRUNTIME_PROGUARD = "-keep class ai.onnxruntime.** { *; }\n"
_AAR_METADATA = (
    "aarFormatVersion=1.0\naarMetadataVersion=1.0\nminCompileSdk=1\nminCompileSdkExtension=0\n"
    "minAndroidGradlePluginVersion=4.1.0\n"
)
_METADATA = "META-INF/com/android/build/gradle/aar-metadata.properties"


@dataclass(frozen=True, kw_only=True)
class AppModel:
    """A bundle under the name that it has in an app: of its asset, its namespace, its archive."""

    bundle: Bundle
    asset: str
    identifier: str


@dataclass(frozen=True, kw_only=True)
class Runtimes:
    """Runtimes by ABI, and the API level of the oldest Android that all of them are for."""

    by_abi: Mapping[str, Runtime]
    api: int


def find_runtimes(bundles: Sequence[Bundle], runtimes: Sequence[Runtime]) -> Runtimes:
    """Return the runtimes that these bundles need, one an ABI. Raises BundleError where a bundle is
    not for Android, or no runtime is for its machine; LinkError where a runtime was not built for
    Android, or has no native half for Java."""
    check_for_android(bundles)
    found = {abi_of(runtime): runtime for runtime in runtimes}
    for bundle in bundles:
        abi = ABIS.get(bundle.manifest.library.machine, bundle.manifest.library.machine)
        if abi not in found:
            raise BundleError(
                f"{bundle.path} is for {abi}, but the runtimes are for {', '.join(found)}",
                hint=f"adrenoc runtime build --abi {abi} -o DIR, then --runtime DIR",
            )
    for abi, runtime in found.items():
        if not (runtime.folder / JNI_LIBRARY).is_file():
            raise LinkError(
                f"the runtime at {runtime.folder} has no {JNI_LIBRARY}, which the Java classes of "
                "an archive call: it was built before there were any",
                hint=f"adrenoc runtime build --abi {abi} -o {quote_word(runtime.folder)}",
            )
    api = max(MIN_API, *(read_elf(runtime.library).android_api for runtime in runtimes))
    return Runtimes(by_abi=found, api=api)


def check_for_android(bundles: Sequence[Bundle]) -> None:
    """Refuse bundles that no app can take, and one that is given twice. Raises BundleError naming
    the first of them."""
    for bundle in bundles:
        triple = bundle.manifest.target.llvm_triple
        if not runs_on_android(triple):
            here = "this computer" if bundle.manifest.target.host else f"Linux ({triple})"
            raise BundleError(
                f"{bundle.path} was compiled for {here}, expected one for Android",
                hint="adrenoc compile MODEL --device adreno",
            )
    name_models(bundles)


def name_models(bundles: Sequence[Bundle]) -> tuple[AppModel, ...]:
    """Return a name for each bundle that no other has; those that would share one get a digest
    each. Raises BundleError where two of them are the same bundle."""
    plain = [identifier(bundle.manifest.name) for bundle in bundles]
    models: list[AppModel] = []
    for bundle, shared in zip(bundles, plain, strict=True):
        asset, name = bundle.manifest.name, shared
        if plain.count(shared) > 1:
            digest = sha256_bytes(bundle.manifest.to_json().encode())[:_DIGEST_LETTERS]
            asset, name = f"{asset}_{digest}", f"{shared}_{digest}"
        if any(name == other.identifier for other in models):
            raise BundleError(
                f"{bundle.path} is given twice, or twice under one name",
                hint="name each bundle once; models in files of other names get other names",
            )
        models.append(AppModel(bundle=bundle, asset=f"{asset}{SUFFIX}.tar", identifier=name))
    return tuple(models)


def write_aar(bundle: Bundle, runtimes: Sequence[Runtime], output: Path) -> Packed:
    """Write one archive with the runtime and a bundle, for an app that has no other model.

    It holds the bundle as an asset, the libraries for each of `runtimes`' ABIs (also as a prefab
    package, for C and C++), the classes of `org.adrenoc`, and the manifest lines for OpenCL. Raises
    BundleError where the bundle is not for Android, or no runtime is for its machine;
    DependencyError where there is no Java compiler; LinkError where a runtime was not built for
    Android, or has no native half for Java; OutputError where `output` cannot be written.
    """
    found = find_runtimes([bundle], runtimes)
    (model,) = name_models([bundle])
    content = {
        **runtime_content(found),
        **_model_assets(model, output),
        "AndroidManifest.xml": _manifest(f"org.adrenoc.app.{model.identifier}", found.api, _OPENCL),
    }
    write_atomically(output, archive(content))
    return Packed(path=output, files=tuple((p, len(d)) for p, d in sorted(content.items())))


def runtime_content(runtimes: Runtimes) -> dict[str, bytes]:
    """Return the files of an archive with the runtime alone."""
    content = _frame("org.adrenoc.runtime", runtimes.api, _OPENCL)
    content["classes.jar"] = _jar(compile_classes())
    content["proguard.txt"] = _PROGUARD.encode()
    for abi, runtime in runtimes.by_abi.items():
        for library in _LIBRARIES:
            content[f"jni/{abi}/{library}"] = (runtime.folder / library).read_bytes()
        for text in (LICENSE, NOTICE):
            content[f"META-INF/{text}"] = (runtime.folder / text).read_bytes()
            content[f"{_NOTICES}/{text}.txt"] = (runtime.folder / text).read_bytes()
    content.update(_prefab(runtimes))
    return content


def provider_content(runtimes: Runtimes) -> dict[str, bytes]:
    """Return the files of an archive with the provider for onnxruntime, which needs that of the
    runtime beside it; none where no runtime was built with it."""
    having = {abi: one for abi, one in runtimes.by_abi.items() if one.provider.is_file()}
    if not having:
        return {}
    content = _frame("org.adrenoc.onnxruntime", runtimes.api, "")
    content["proguard.txt"] = _ONNXRUNTIME_PROGUARD.encode()
    for abi, runtime in having.items():
        content[f"jni/{abi}/{PROVIDER}"] = runtime.provider.read_bytes()
        for text in (LICENSE, NOTICE):
            content[f"META-INF/{text}"] = (runtime.folder / text).read_bytes()
    return content


def model_content(model: AppModel, api: int, scratch: Path) -> dict[str, bytes]:
    """Return the files of an archive with a model alone, beside that of the runtime."""
    namespace = f"org.adrenoc.model.{model.identifier}"
    return {**_frame(namespace, api, ""), **_model_assets(model, scratch)}


def archive(content: Mapping[str, bytes]) -> bytes:
    """Return an archive of these files; equal files give equal bytes."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as written:
        for path, data in sorted(content.items()):
            written.writestr(_member(path), data)
    return buffer.getvalue()


def _frame(namespace: str, api: int, application: str) -> dict[str, bytes]:
    """Return what every archive has to have."""
    return {
        "AndroidManifest.xml": _manifest(namespace, api, application),
        "classes.jar": _jar({}),
        "R.txt": b"",
        _METADATA: _AAR_METADATA.encode(),
    }


def _manifest(namespace: str, api: int, application: str) -> bytes:
    text = _MANIFEST.format(namespace=quoteattr(namespace), api=api, application=application)
    return text.encode()


def _model_assets(model: AppModel, scratch: Path) -> dict[str, bytes]:
    with scratch_folder_for(scratch) as folder:
        tar = folder / "bundle.tar"
        write_app_tar(model.bundle.root, tar, name=model.bundle.manifest.name)
        content = {f"assets/{model.asset}": tar.read_bytes()}
    if context_file(model.bundle.path.resolve()).is_file():  # as `compile --onnxruntime` leaves it
        name = Path(model.asset).stem
        content[f"assets/{context_file(Path(name))}"] = make_context(model.bundle, name)
    return content


def _prefab(runtimes: Runtimes) -> dict[str, bytes]:
    """Return the libraries in the form in which Android builds give them to CMake."""
    module = "prefab/modules/adrenoc_runtime"
    package = {"schema_version": 2, "name": "adrenoc", "dependencies": []}
    content = {
        "prefab/prefab.json": _json({**package, "version": adrenoc.__version__}),
        f"{module}/module.json": _json({"export_libraries": [], "library_name": None}),
    }
    for abi, runtime in runtimes.by_abi.items():
        facts = {"abi": abi, "api": runtimes.api, "ndk": 23, "stl": "none", "static": False}
        content[f"{module}/libs/android.{abi}/abi.json"] = _json(facts)
        library = runtime.library.read_bytes()
        content[f"{module}/libs/android.{abi}/{LIBRARY}"] = library
        for header in HEADERS:
            content[f"{module}/include/{header}"] = (runtime.folder / header).read_bytes()
    return content


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"


def _jar(classes: Mapping[str, bytes]) -> bytes:
    """Class files as a jar; an archive asks for one where it has none, too."""
    return archive({"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\n", **classes})


def _member(path: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(path, date_time=_EPOCH)
    member.external_attr = 0o644 << 16
    # The bundle is mapped from the APK as it is.
    stored = path.endswith((".tar", ".jar"))
    member.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    return member


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
    OutputError where `output` cannot be written."""
    for bundle in bundles:
        if not read_editions(bundle):
            raise BundleError(
                f"{bundle.path} has kernels for one device, expected one for several to split",
                hint="adrenoc compile MODEL --device adreno:660,adreno:750",
            )
    found: dict[str, list[str]] = {}
    for target in list_targets():
        if target.soc is not None and _CHIP.fullmatch(target.soc.name):
            found.setdefault(target.soc.gpu, []).append(target.soc.name.upper())
    chips = {gpu: tuple(sorted(names)) for gpu, names in found.items()}
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
