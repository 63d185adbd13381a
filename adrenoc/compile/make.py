"""From a model file to a bundle on disk: cache, compile, link, write.

Imports TVM on a cache miss only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.base.errors import BundleError
from adrenoc.base.files.outputs import (
    check_file_can_be_written,
    check_folder_can_be_replaced,
    scratch_folder_for,
    write_folder_atomically,
)
from adrenoc.base.files.read import (
    android_ndk_folders,
    cache_folder,
    inputs_kept,
    sha256_bytes,
    sha256_json,
)
from adrenoc.base.host.time_trace import section
from adrenoc.base.reporter import Reporter
from adrenoc.base.text.names import bundle_name, file_name
from adrenoc.bundle.bundle import (
    BUNDLE_FOLDER,
    LIBRARY,
    TARGET,
    Bundle,
    fill_bundle,
    move_bundle,
    open_bundle,
)
from adrenoc.bundle.manifest import FileEntry, Manifest, ModelInfo, OptionsInfo, TargetInfo
from adrenoc.bundle.tar import MANIFEST, SUFFIX, write_tar
from adrenoc.compile.cache import BundleCache, BundleDigests, cache_key, tool_versions
from adrenoc.compile.decoder_plan import add_text_tables
from adrenoc.compile.load_tvm import quick_loading
from adrenoc.importers.formats import find_model_files
from adrenoc.ir.options import TOKEN_OPTIONS, CompileOptions, Shapes
from adrenoc.ir.tuning_log import choose_trials, find_log, read_log
from adrenoc.native.android.link import Linker, find_linker, link_library
from adrenoc.target.gpu import Roofline
from adrenoc.target.target import Target

if TYPE_CHECKING:
    from adrenoc.base.decision import Decision, DecisionLog
    from adrenoc.compile.compiler import Compiled
    from adrenoc.compile.decoder_plan import EditionPlan
    from adrenoc.compile.fallback import Fallback
    from adrenoc.compile.make_buckets import Fill


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
        """Return the size of the bundle's files."""
        return sum(entry.bytes for entry in self.manifest.files)


def default_output(model: Path) -> Path:
    """Return where a bundle goes when nobody says: `NAME.adrenoc` here."""
    return Path(model.stem + SUFFIX)


def make_bundle(
    model: Path,
    *,
    target: Target,
    options: CompileOptions,
    output: Path,
    reporter: Reporter,
    buckets: Sequence[Shapes] = (),
    signatures: Sequence[CompileOptions] = (),
    tar: bool = False,
    use_cache: bool = True,
    dump_dir: Path | None = None,
    chosen_before: Sequence[Decision] = (),
    with_fallback: bool = False,
    words: Mapping[str, bytes] | None = None,
    editions: Sequence[EditionPlan] = (),
) -> Made:
    """Compile `model` into a bundle at `output`; all or nothing is written.

    `chosen_before` are decisions that led to these options; the bundle keeps them, and a decoder's
    `words`: its tokenizer.json and its chat.json, by name.  `with_fallback`: an int8 model's code
    for the CPU goes with it.
    With `buckets` it is compiled for each of these choices of input shapes, the largest last; with
    `signatures` by what each of these options calls so, the last being `options`; with `editions`
    for these GPUs too, and `target` is what they have in common.
    With `dump_dir` the stages have to run, so the cache is written and not read.
    """
    started, files, name = time.perf_counter(), find_model_files(model), bundle_name(model.stem)
    if name != model.stem:
        reporter.note(
            f"the bundle calls itself {name}: its name becomes paths and words of build files, so "
            "that it has letters, digits, `_`, `.` and `-` alone"
        )
    with inputs_kept(lambda: files.paths):
        _warn_of_log(options, target, reporter)
        if tar:
            check_file_can_be_written(output)
        else:
            check_folder_can_be_replaced(output, BUNDLE_FOLDER)
        sha256 = files.sha256()
        job = _Job(
            model=model,
            name=name,
            info=ModelInfo(
                file=file_name(model.name),
                format=files.format,
                sha256=sha256,
                file_sha256=sha256 if files.is_whole else "",
            ),
            target=target,
            options=options,
            buckets=tuple(buckets),
            signatures=tuple(signatures),
            output=output,
            tar=tar,
            reporter=reporter,
            chosen_before=tuple(chosen_before),
            with_fallback=with_fallback,
            words=dict(words or {}),
            editions=tuple(editions),
        )
        cache = BundleCache(cache_folder(), reporter) if use_cache else None
        manifest, decisions, cached = _make(job, cache, dump_dir)
    took_ms = _ms_since(started)
    return Made(path=output, manifest=manifest, decisions=decisions, cached=cached, time_ms=took_ms)


def _warn_of_log(options: CompileOptions, target: Target, reporter: Reporter) -> None:
    """Say before the long work what is odd about the tuning log, where one is given."""
    if options.tuning_log is None:
        return
    log = find_log(options.tuning_log)
    _, warning = choose_trials(read_log(log), target.measured_as, str(log))
    if warning:
        reporter.warn(warning)


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What to make of what, and where."""

    model: Path
    name: str
    info: ModelInfo
    target: Target
    options: CompileOptions
    buckets: tuple[Shapes, ...]
    signatures: tuple[CompileOptions, ...]
    output: Path
    tar: bool
    reporter: Reporter
    chosen_before: tuple[Decision, ...]
    with_fallback: bool
    words: dict[str, bytes]
    editions: tuple[EditionPlan, ...]

    @property
    def key(self) -> str:
        """Return the key of the compilation in the cache."""
        options = self.options
        return cache_key(
            {
                "file": self.model.name,
                "model": self.info.sha256,
                "target": self.target.digest(),
                "options": options.digest(),
                "ndk": options.ndk or str(next((f for _, f in android_ndk_folders()), "")),
                "buckets": repr(self.buckets),
                "signatures": sha256_json([one.digest() for one in self.signatures]),
                "chosen_before": sha256_json([asdict(d) for d in self.chosen_before]),
                "fallback": str(self.with_fallback),
                "words": sha256_json({n: sha256_bytes(w) for n, w in self.words.items()}),
                "editions": sha256_json([plan.digest() for plan in self.editions]),
            }
        )

    @property
    def wanted(self) -> BundleDigests:
        """Return what a bundle of the cache has to say of itself."""
        return BundleDigests(
            model=self.info.sha256, target=self.target.digest(), options=self.options.digest()
        )


_Placed = tuple[Manifest, list[dict[str, str]], bool]
"""The manifest, the decisions, and whether the bundle came from the cache."""


def _make(job: _Job, cache: BundleCache | None, dump_dir: Path | None) -> _Placed:
    """Take the bundle from the cache, or compile it and keep it there; one process at a time."""
    if cache is None:
        return _compile_into_place(job, None, "", dump_dir)
    key = job.key
    with cache.lock(key):
        found = _fetch_from_cache(job, cache, key) if dump_dir is None else None
        return found or _compile_into_place(job, cache, key, dump_dir)


def _fetch_from_cache(job: _Job, cache: BundleCache, key: str) -> _Placed | None:
    promised = cache.manifest(key, job.wanted)
    if promised is None:
        return None
    if not job.tar and (held := _open_held(job.output, promised)) is not None:
        return held.manifest, held.decisions(), True
    with scratch_folder_for(job.output) as scratch:
        found = cache.fetch(key, job.wanted, scratch / "bundle")
        if found is None:
            return None
        decisions = found.decisions()
        if job.tar:
            write_tar(found.root, job.output, name=found.manifest.name)
        else:
            move_bundle(found.root, job.output)
        return found.manifest, decisions, True


def _compile_into_place(
    job: _Job, cache: BundleCache | None, key: str, dump_dir: Path | None
) -> _Placed:
    target, options = job.target, job.options
    linker = find_linker(
        host=target.host, ndk=Path(options.ndk) if options.ndk else None
    )  # before the long work, not after it
    words, decided = add_text_tables(job.words)
    chosen_before = (*job.chosen_before, *decided)
    job = replace(job, chosen_before=chosen_before, words=words)
    writer = _Writer(job=job, target=target, linker=linker, fallback=_plan_fallback(job))
    fill, decisions = _compile(job, writer=writer, dump_dir=dump_dir)

    def fill_and_keep(root: Path) -> Manifest:
        manifest = fill(root)
        if cache is not None:
            # Before it gets its place, where another process may put something else.
            with section("keep in the cache", "file"):
                cache.store(key, root)
        return manifest

    if job.tar:
        with scratch_folder_for(job.output) as root:
            manifest = fill_and_keep(root)
            write_tar(root, job.output, name=manifest.name)
    else:
        with write_folder_atomically(job.output, BUNDLE_FOLDER) as root:
            manifest = fill_and_keep(root)
    return manifest, decisions.to_json(), False


def _plan_fallback(job: _Job) -> Fallback | None:
    if not job.with_fallback:
        return None
    from adrenoc.compile.fallback import plan_fallback

    return plan_fallback(job.model, job.info.format)


def _compile(
    job: _Job, *, writer: _Writer, dump_dir: Path | None
) -> tuple[Callable[[Path], Manifest], DecisionLog]:
    """Compile; what writes the bundle into a folder, and the decisions."""
    options = job.options
    shared: dict[str, Any] = {"sha256": job.info.sha256, "reporter": job.reporter}
    if not (job.editions or job.signatures or job.buckets):
        with quick_loading():
            from adrenoc.compile.compiler import compile_model

        compiled = compile_model(
            job.model, target=job.target, options=options, dump_dir=dump_dir, **shared
        )
        return (lambda root: writer.fill(root, compiled, options)), compiled.decisions
    with quick_loading():
        from adrenoc.compile import make_buckets

    if job.editions:
        whole = make_buckets.compile_editions(
            job.model,
            common=job.target,
            options=options,
            plans=job.editions,
            buckets=job.buckets,
            **shared,
        )
        return (lambda root: whole.fill(root, writer.fill_for)), whole.common.decisions
    shared["target"] = job.target
    if job.signatures:
        several = make_buckets.compile_signatures(job.model, signatures=job.signatures, **shared)
    else:
        several = make_buckets.compile_buckets(
            job.model, options=options, buckets=job.buckets, **shared
        )
    return (lambda root: several.fill(root, writer.fill)), several.decisions


@dataclass(frozen=True, kw_only=True)
class _Writer:
    """Links compiled models and writes their bundles into folders."""

    job: _Job
    target: Target
    linker: Linker
    fallback: Fallback | None

    def fill_for(self, target: Target) -> Fill:
        """Return what writes bundles for another target than this one's."""
        return replace(self, target=target).fill

    def fill(
        self,
        root: Path,
        compiled: Compiled,
        options: CompileOptions,
        params: FileEntry | None = None,
    ) -> Manifest:
        job, target = self.job, self.target
        compiled.decisions.extend(job.chosen_before)
        job.reporter.working(f"link for {target.name}", 1, 1)
        started = time.perf_counter()
        with section("link", "file"):
            library = link_library(
                compiled.library, root / LIBRARY, triple=target.llvm_triple, linker=self.linker
            )
        job.reporter.part("link", _ms_since(started), f"{library.machine}, {self.linker.version}")
        if self.fallback is not None:
            started = time.perf_counter()
            size = self.fallback.write(root, compiled, target.llvm_triple)
            job.reporter.part("fallback", _ms_since(started), f"{size} bytes for the CPU")
        started = time.perf_counter()
        if target.own is not None:
            (root / TARGET).write_bytes(target.own.text.encode("utf-8"))
        # Of parts the one that is the whole bundle.
        is_whole = params is None or (root / params.path).is_file()
        for name, content in job.words.items() if is_whole else ():
            (root / name).write_bytes(content)
        about: dict[str, Any] = {
            "name": job.name,
            "model": job.info,
            "target": TargetInfo(
                name=target.name,
                host=target.host,
                llvm_triple=target.llvm_triple,
                digest=target.digest(),
            ),
            "options": OptionsInfo(
                preset=options.preset, values=options.kept_values(), digest=options.digest()
            ),
            "recurrent": tuple(past for past, _ in options.recurrent),
            "slack": options.slack,
            **{name: getattr(options, name) for name in TOKEN_OPTIONS},
            "versions": {**tool_versions(), "linker": self.linker.version},
        }
        with section("write", "file"):
            manifest = fill_bundle(
                root,
                compiled,
                library=library,
                manifest=about,
                params=params,
                floors=not Roofline.from_performance(target.performance).missing,
            )
        job.reporter.part("write", _ms_since(started), f"{len(manifest.files)} files")
        return manifest


def _open_held(output: Path, manifest: Manifest) -> Bundle | None:
    """Return the bundle folder `output` where it is this very bundle, undamaged."""
    if not (output / MANIFEST).is_file():
        return None
    try:
        bundle = open_bundle(output)
    except (BundleError, OSError):
        return None
    return bundle if bundle.manifest == manifest else None


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
