"""From a model file to a bundle on disk: cache, compile, link, write.

Imports TVM on a cache miss only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.bundle import (
    LIBRARY,
    MANIFEST,
    SUFFIX,
    Bundle,
    copy_bundle,
    fill_bundle,
    open_bundle,
    write_tar,
)
from adrenoc.cache import BundleCache, cache_key, tool_versions
from adrenoc.errors import BundleError
from adrenoc.files import (
    android_ndk_folders,
    cache_folder,
    check_folder_can_be_replaced,
    scratch_folder_for,
    sha256_json,
    write_folder_atomically,
)
from adrenoc.importers.formats import find_model_files
from adrenoc.link import Linker, find_linker, link_library
from adrenoc.manifest import FileEntry, Manifest, ModelInfo, OptionsInfo, TargetInfo
from adrenoc.names import bundle_name, file_name
from adrenoc.options import CompileOptions, Shapes
from adrenoc.reporter import Reporter
from adrenoc.target import Target
from adrenoc.tuning_log import find_log, for_gpu, read_log

if TYPE_CHECKING:
    from adrenoc.compiler import Compiled
    from adrenoc.decision import Decision, DecisionLog


@dataclass(frozen=True, kw_only=True)
class Made:
    """A bundle that was written to `path`; `cached` when it came from the compile cache."""

    path: Path
    manifest: Manifest
    decisions: list[dict[str, str]]
    cached: bool
    time_ms: float

    @property
    def bytes(self) -> int:
        """The size of the bundle's files."""
        return sum(entry.bytes for entry in self.manifest.files)


def default_output(model: Path, *, tar: bool) -> Path:
    """Where a bundle goes when nobody says: `NAME.adrenoc` or `NAME.adrenoc.tar` here."""
    return Path(model.stem + SUFFIX + (".tar" if tar else ""))


def make_bundle(
    model: Path,
    *,
    target: Target,
    options: CompileOptions,
    output: Path,
    reporter: Reporter,
    buckets: Sequence[Shapes] = (),
    tar: bool = False,
    use_cache: bool = True,
    dump_dir: Path | None = None,
    chosen_before: Sequence[Decision] = (),
) -> Made:
    """Compile `model` into a bundle at `output`; all or nothing is written.

    `chosen_before` are decisions that led to these options; the bundle keeps them.
    With `buckets` it is compiled for each of these choices of input shapes, the largest last.
    With `dump_dir` the stages have to run, so the cache is written and not read.

    Raises:
        AdrenocError: any of the ways in which importing, compiling, linking or writing fails.
    """
    started = time.perf_counter()
    files = find_model_files(model)
    name = bundle_name(model.stem)
    if name != model.stem:
        reporter.note(
            f"the bundle calls itself {name}: its name becomes paths and words of build files, so "
            "that it has letters, digits, `_`, `.` and `-` alone"
        )
    if options.tuning_log is not None:
        log = find_log(options.tuning_log)
        _, warning = for_gpu(read_log(log), target.measured_as, str(log))
        if warning:
            reporter.warn(warning)
    if not tar:
        check_folder_can_be_replaced(output, MANIFEST)
    info = ModelInfo(file=file_name(model.name), format=files.format, sha256=files.sha256())
    key = cache_key(
        {
            "file": model.name,
            "model": info.sha256,
            "target": target.digest(),
            "options": options.digest(),
            "ndk": options.ndk or str(next((f for _, f in android_ndk_folders()), "")),
            "buckets": repr(tuple(buckets)),
            "chosen_before": sha256_json([asdict(decision) for decision in chosen_before]),
        }
    )
    cache = BundleCache(cache_folder(), reporter) if use_cache else None
    found = cache.find(key) if cache is not None and dump_dir is None else None
    if found is not None:
        _place(found, output, tar=tar)
        return Made(
            path=output,
            manifest=found.manifest,
            decisions=found.decisions(),
            cached=True,
            time_ms=_ms_since(started),
        )
    linker = find_linker(
        host=target.host, ndk=Path(options.ndk) if options.ndk else None
    )  # before the long work, not after it
    writer = _Writer(
        info=info,
        target=target,
        linker=linker,
        name=name,
        reporter=reporter,
        chosen_before=tuple(chosen_before),
    )
    fill, decisions = _compile(model, options, buckets, writer=writer, dump_dir=dump_dir)
    if tar:
        with scratch_folder_for(output) as root:
            manifest = fill(root)
            write_tar(root, output, name=manifest.name)
            if cache is not None:
                cache.store(key, root)
    else:
        with write_folder_atomically(output, marker=MANIFEST) as root:
            manifest = fill(root)
        if cache is not None:
            cache.store(key, output)
    return Made(
        path=output,
        manifest=manifest,
        decisions=decisions.to_json(),
        cached=False,
        time_ms=_ms_since(started),
    )


def _compile(
    model: Path,
    options: CompileOptions,
    buckets: Sequence[Shapes],
    *,
    writer: _Writer,
    dump_dir: Path | None,
) -> tuple[Callable[[Path], Manifest], DecisionLog]:
    """Compile; what writes the bundle into a folder, and the decisions."""
    if buckets:
        from adrenoc.make_buckets import compile_buckets

        several = compile_buckets(
            model,
            target=writer.target,
            options=options,
            buckets=buckets,
            reporter=writer.reporter,
        )
        return (lambda root: several.fill(root, writer.fill)), several.largest.decisions
    from adrenoc.compiler import compile_model

    compiled = compile_model(
        model, target=writer.target, options=options, reporter=writer.reporter, dump_dir=dump_dir
    )
    return (lambda root: writer.fill(root, compiled, options)), compiled.decisions


@dataclass(frozen=True, kw_only=True)
class _Writer:
    """Links compiled models and writes their bundles into folders."""

    info: ModelInfo
    target: Target
    linker: Linker
    name: str
    reporter: Reporter
    chosen_before: tuple[Decision, ...] = ()

    def fill(
        self,
        root: Path,
        compiled: Compiled,
        options: CompileOptions,
        params: FileEntry | None = None,
    ) -> Manifest:
        compiled.decisions.extend(self.chosen_before)
        started = time.perf_counter()
        library = link_library(
            compiled.library,
            root / LIBRARY,
            triple=self.target.llvm_triple,
            linker=self.linker,
        )
        self.reporter.stage("link", _ms_since(started), f"{library.machine}, {self.linker.version}")
        started = time.perf_counter()
        about: dict[str, Any] = {
            "name": self.name,
            "model": self.info,
            "target": TargetInfo(
                name=self.target.name,
                host=self.target.host,
                llvm_triple=self.target.llvm_triple,
                digest=self.target.digest(),
            ),
            "options": OptionsInfo(
                preset=options.preset,
                values=_that_change_the_result(options),
                digest=options.digest(),
            ),
            "versions": {**tool_versions(), "linker": self.linker.version},
        }
        manifest = fill_bundle(root, compiled, library=library, manifest=about, params=params)
        self.reporter.stage("write", _ms_since(started), f"{len(manifest.files)} files")
        return manifest


def _that_change_the_result(options: CompileOptions) -> dict[str, Any]:
    """All options but what differs from machine to machine: the NDK's folder, the log's place."""
    values = asdict(options)
    del values["ndk"]
    if options.tuning_log is not None:
        values["tuning_log"] = Path(options.tuning_log).name
    return values


def _place(bundle: Bundle, output: Path, *, tar: bool) -> None:
    if tar:
        write_tar(bundle.root, output, name=bundle.manifest.name)
    elif not _holds(output, bundle.manifest):
        copy_bundle(bundle.root, output)


def _holds(output: Path, manifest: Manifest) -> bool:
    """Whether the bundle folder `output` is this very bundle, undamaged."""
    if not (output / MANIFEST).is_file():
        return False
    try:
        return open_bundle(output).manifest == manifest
    except BundleError:
        return False


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
