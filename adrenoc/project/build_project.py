"""A build: every bundle of a project compiled, held against gates and against the lock; as JUnit's
XML and annotations in GitHub's form for build servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from adrenoc.base.errors import AdrenocError, LockError
from adrenoc.base.files.outputs import (
    OTHER_PLACE,
    output_error,
    scratch_folder_for,
    write_atomically,
)
from adrenoc.base.host.proc import Result
from adrenoc.base.text.report import JunitCase, JunitSuite, show_suites
from adrenoc.base.text.spelling import list_first, printable, quote_word, show_bytes, show_ms
from adrenoc.bundle.buckets import name_parts
from adrenoc.bundle.bundle import Bundle, move_bundle, open_bundle
from adrenoc.bundle.gates import Figures, figures_of, list_broken
from adrenoc.compile.cache import tool_versions
from adrenoc.project.project_file import (
    BundleLimits,
    Lock,
    LockedBundle,
    Project,
    Recipe,
    digest_reads,
    list_unlike_reads,
    list_unlike_results,
    lock_bundle,
    read_lock,
    resolve_words,
)

MADE, FAILED, BROKEN, DIFFERS = "made", "failed", "broken", "differs"
_MIB = 2**20
_TICK_S = 0.2

Run = Callable[[Sequence[str]], Result]


@dataclass(frozen=True, kw_only=True)
class BundleOutcome:
    """What became of one bundle. `status` is "made", "failed" (with the exit code and message of
    `compile`), "broken" (gates, which are the `notes`) or "differs" (from the lock)."""

    name: str
    model: str
    status: str
    path: str
    exit_code: int = 0
    message: str = ""
    hint: str = ""
    notes: tuple[str, ...] = ()
    cached: bool = False
    took_s: float = 0.0
    figures: Figures | None = None


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """How to build. `locked`: nothing may differ from the lock, which stays as it is, and so does
    what lies where a bundle that differs would go. `accept`: what grew beyond `grow` is taken, and
    becomes what the lock has."""

    locked: bool = False
    accept: bool = False
    jobs: int = 2


@dataclass(frozen=True, kw_only=True)
class BuildResult:
    """All bundles in the order of the file; whether the lock is new, and whether there is one."""

    bundles: tuple[BundleOutcome, ...]
    lock_written: bool
    lock_is_there: bool

    @property
    def bad(self) -> tuple[BundleOutcome, ...]:
        """Return what did not end well."""
        return tuple(one for one in self.bundles if one.status != MADE)


def build_project(
    project: Project, options: BuildOptions, run: Run, progress: Callable[[str, Result], None]
) -> BuildResult:
    """Make all bundles; `run` starts a command of adrenoc, `progress` hears of each.

    Raises LockError where with `locked` something that is read differs from the lock, or there is
    none: then nothing is compiled.  Or the lock is damaged; AdrenocError where a file that a recipe
    names is missing; OutputError where the folder of bundles or the lock cannot be written.
    """
    lock = read_lock(project.lock_path)
    reads = {recipe.name: digest_reads(recipe) for recipe in project.recipes}
    if options.locked:
        _check_reads(project, lock, reads)
    _make_folders(project)
    outcomes, locks = [], []
    with ExitStack() as stack:
        # What is locked is made aside: what differs is not to be taken for what was.
        places = [
            stack.enter_context(scratch_folder_for(recipe.output)) / recipe.output.name
            if options.locked
            else recipe.output
            for recipe in project.recipes
        ]
        made_at = [replace(r, output=p) for r, p in zip(project.recipes, places, strict=True)]
        said = _run_side_by_side(
            [resolve_words(recipe) for recipe in made_at],
            run=run,
            jobs=options.jobs,
            finished=lambda number, one: progress(project.recipes[number].name, one),
        )
        said = [replace(one, hint=_by_key(one.hint, project)) for one in said]
        for recipe, one in zip(made_at, said, strict=True):
            held = lock.find(recipe.name) if lock else None
            outcome, made = _judge(recipe, one, reads[recipe.name], held, options)
            outcomes.append(outcome)
            locks.append(made)
        if options.locked:
            outcomes = [
                _put_in_place(recipe, place, outcome)
                for recipe, place, outcome in zip(project.recipes, places, outcomes, strict=True)
            ]
    written = False
    if not options.locked and all(outcome.status == MADE for outcome in outcomes):
        written = _write_lock(project, lock, locks)
    return BuildResult(
        bundles=tuple(outcomes), lock_written=written, lock_is_there=written or lock is not None
    )


def _run_side_by_side(
    commands: Sequence[Sequence[str]],
    *,
    run: Run,
    jobs: int,
    finished: Callable[[int, Result], None],
) -> list[Result]:
    """Return all commands, `jobs` at a time; `finished` hears of each, from the calling thread."""
    pool = ThreadPoolExecutor(max_workers=jobs)
    try:
        numbers = {pool.submit(run, words): number for number, words in enumerate(commands)}
        waiting = set(numbers)
        while waiting:
            # With a limit, so that a signal is heard.
            done, waiting = wait(waiting, timeout=_TICK_S, return_when=FIRST_COMPLETED)
            for future in done:
                finished(numbers[future], future.result())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [future.result() for future in numbers]


def _put_in_place(recipe: Recipe, made_at: Path, outcome: BundleOutcome) -> BundleOutcome:
    """Have a bundle where the project wants it, if it is what the lock says. Raises OutputError
    where it cannot be written there."""
    if outcome.status == MADE and made_at.is_dir():
        move_bundle(made_at, recipe.output)
    elif outcome.status == MADE:
        write_atomically(recipe.output, made_at.read_bytes())
    return replace(outcome, path=str(recipe.output))


def _write_lock(project: Project, old: Lock | None, made: Sequence[LockedBundle | None]) -> bool:
    bundles = sorted((one for one in made if one is not None), key=lambda one: one.name)
    new = Lock(bundles=tuple(bundles))
    if new == old:
        return False
    write_atomically(project.lock_path, new.to_json())
    return True


def _check_reads(project: Project, lock: Lock | None, reads: dict[str, dict[str, str]]) -> None:
    if lock is None:
        raise LockError(
            f"there is no {project.lock_path}, which --locked holds a build against",
            hint="adrenoc build, and commit the lock",
        )
    tools = tool_versions()
    names = {recipe.name for recipe in project.recipes}
    unlike = [
        sentence
        for recipe in project.recipes
        for sentence in list_unlike_reads(recipe, reads[recipe.name], tools, lock.find(recipe.name))
    ]
    unlike += [
        f"{one.name} is in the lock, and not in {project.path.name}"
        for one in lock.bundles
        if one.name not in names
    ]
    if unlike:
        raise LockError(
            f"{project.lock_path} does not hold: {list_first(unlike)}",
            hint="adrenoc build makes the lock anew; look at what changed with git diff",
        )


def _judge(
    recipe: Recipe,
    said: Result,
    reads: dict[str, str],
    held: LockedBundle | None,
    options: BuildOptions,
) -> tuple[BundleOutcome, LockedBundle | None]:
    """Return what became of a bundle, and what the lock is to say of it."""
    outcome = BundleOutcome(
        name=recipe.name,
        model=str(recipe.model),
        status=MADE,
        path=str(recipe.output),
        took_s=round(said.took_s, 3),
        cached=bool(said.output.get("cached")),
    )
    if said.exit_code:
        return _fail(outcome, said.exit_code, said.error, said.hint), None
    try:
        bundle = open_bundle(recipe.output)
        made = lock_bundle(recipe, bundle, reads)
        over = _list_over_parts(recipe.limits, bundle, made.figures.size_bytes)
    except AdrenocError as error:
        return _fail(outcome, error.exit_code, error.message, error.hint), None
    outcome = replace(outcome, figures=made.figures)
    if over:
        words = " ".join(recipe.words[:2])
        hint = f"adrenoc check {quote_word(recipe.model)} {words} --html page.html"
        outcome = replace(outcome, status=BROKEN, notes=over, hint=hint)
    if held is not None and not options.accept:
        if grown := list_broken(recipe.grow, held.figures, made.figures):
            hint = "adrenoc build --accept takes what grew"
            outcome = replace(outcome, status=BROKEN, notes=(*outcome.notes, *grown), hint=hint)
        if options.locked and (unlike := list_unlike_results(held, made)):
            hint = "adrenoc build makes the lock anew; look at what changed with git diff"
            outcome = replace(outcome, status=DIFFERS, notes=(*outcome.notes, *unlike), hint=hint)
    return outcome, made


def _make_folders(project: Project) -> None:
    for recipe in project.recipes:
        try:
            recipe.output.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            refused = output_error(recipe.output.parent, error)
            refused.hint = _by_key(refused.hint, project)
            raise refused from error


def _by_key(hint: str, project: Project) -> str:
    """Return a hint of `adrenoc compile` as one of a build, which has no --output."""
    other = f'name another folder in {project.path}: output = "FOLDER"'
    return hint.replace(OTHER_PLACE, other)


def _fail(outcome: BundleOutcome, exit_code: int, message: str, hint: str) -> BundleOutcome:
    return replace(outcome, status=FAILED, exit_code=exit_code, message=message, hint=hint)


_LIMITED: dict[str, tuple[str, float, Callable[[float], str]]] = {
    "kernels": ("kernels", 1, "{:g}".format),
    "launches": ("launches", 1, "{:g}".format),
    "copies": ("copies", 1, "{:g}".format),
    "cpu_nodes": ("cpu_nodes", 1, "{:g}".format),
    "buffer_nodes": ("buffer_nodes", 1, "{:g}".format),
    "memory_mib": ("memory_bytes", _MIB, lambda count: show_bytes(int(count))),
    "size_mib": ("size_bytes", _MIB, lambda count: show_bytes(int(count))),
    "time_us": ("time_us", 1, lambda us: show_ms(us / 1000)),
}
"""The figure of each limit, what its unit is of the figure's, and how people read it."""


def _list_over_parts(limits: BundleLimits, bundle: Bundle, size_bytes: int) -> tuple[str, ...]:
    """Return a sentence for each limit that kernels for any GPU and any shapes break; of one
    size."""
    said: dict[str, None] = {}
    parts = name_parts(bundle)
    for name, part in parts.items():
        figures = replace(figures_of(part), size_bytes=size_bytes)
        whose = f" ({name})" if len(parts) > 1 else ""
        said |= {
            sentence if sentence.startswith("size_mib") else sentence + whose: None
            for sentence in _list_over(limits, figures)
        }
    return tuple(said)


def _list_over(limits: BundleLimits, figures: Figures) -> tuple[str, ...]:
    said = []
    for name, (key, unit, show) in _LIMITED.items():
        most, seen = getattr(limits, name), getattr(figures, key)
        if most is None:
            continue
        if seen is None:
            said.append(f"{name}: not known, the target lacks rates; {show(most)} allowed")
        elif seen > most * unit:
            said.append(f"{name}: {show(seen)}, {show(most * unit)} allowed")
    return tuple(said)


def build_junit(result: BuildResult) -> str:
    """Return a case for each bundle, in one suite."""
    cases = tuple(
        JunitCase(
            group=Path(one.model).name,
            name=one.name,
            took_s=one.took_s,
            failure="" if one.status == MADE else f"{one.status}: {describe(one)}",
            figures=_figures(one),
        )
        for one in result.bundles
    )
    return show_suites("adrenoc build", [JunitSuite(name="bundles", cases=cases)])


def _figures(one: BundleOutcome) -> str:
    if one.figures is None:
        return ""
    return ", ".join(f"{k}={v}" for k, v in asdict(one.figures).items() if v is not None)


def list_annotations(result: BuildResult, project: Path) -> Iterator[str]:
    """Yield a line for each bundle that did not end well."""
    for one in result.bad:
        title = _escape(f"{one.name}: {one.status}", is_property=True)
        place = _escape(str(project), is_property=True)
        yield f"::error file={place},title={title}::{_escape(describe(one))}"


def describe(one: BundleOutcome) -> str:
    """Return why a bundle did not end well."""
    return one.message or "; ".join(one.notes)


def _escape(text: str, *, is_property: bool = False) -> str:
    """Return a text that ends neither the line nor, as a property, the property."""
    shown = printable(text, lines=True).replace("\t", " ").replace("%", "%25")
    shown = shown.replace("\r", "%0D").replace("\n", "%0A")
    return shown.replace(":", "%3A").replace(",", "%2C") if is_property else shown
