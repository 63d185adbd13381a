"""`adrenoc compile`: a model file becomes a bundle, for one device or several, of one signature of
a TFLite file or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.files.outputs import check_file_can_be_written
from adrenoc.base.host.variables import read_path
from adrenoc.cli import console
from adrenoc.cli.guarded import (
    HeavyCommand,
    InputPath,
    OutputPath,
    give_options,
    option,
    wants_json,
)
from adrenoc.cli.model_params import TARGETS, Parsed
from adrenoc.cli.options import (
    DEVICE_HELP,
    EnteredModel,
    FiniteRange,
    context_option,
    inputs_option,
    output_option,
    policy_of,
    shape_option,
)
from adrenoc.cli.write_views import trace_time
from adrenoc.target.target import SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adrenoc.base.decision import Decision
    from adrenoc.base.reporter import Reporter
    from adrenoc.check.accuracy.result import AccuracyReport
    from adrenoc.cli.plan_shapes import AskedShapes, ShapePlan, ShapeRange
    from adrenoc.compile.decoder_plan import EditionPlan
    from adrenoc.compile.make import Made
    from adrenoc.importers.signature import Entry, Signature
    from adrenoc.ir.options import CompileOptions, ResolvedOptions
    from adrenoc.ir.precision_policy import PrecisionPolicy
    from adrenoc.target.device_set import DeviceSet, SetMember
    from adrenoc.target.target import Target


def read_shape_or_range(text: str) -> tuple[str, tuple[int, ...]] | ShapeRange:
    """Read `NAME:D,D,...` where a D may be a range of extents."""
    from adrenoc.cli.plan_shapes import parse_shape_or_range

    return parse_shape_or_range(text)


def _split_set(target: Target | DeviceSet) -> tuple[Target, tuple[SetMember, ...]]:
    """Return what all devices have in common, and those that get kernels of their own."""
    from adrenoc.target.device_set import DeviceSet

    if isinstance(target, DeviceSet):
        return target.common, target.members
    return target, ()


def list_targets_of(target: Target | DeviceSet) -> tuple[Target, ...]:
    """List one device, or each of a set."""
    common, members = _split_set(target)
    return tuple(member.target for member in members) or (common,)


def _plan_editions(
    members: Sequence[SetMember],
    preset: str | None,
    command_line: Mapping[str, Any],
    float32_tensors: tuple[str, ...],
) -> tuple[EditionPlan, ...]:
    """Return how to compile for each GPU of a set, with the tensors in float32 that are for all."""
    from adrenoc.compile.decoder_plan import EditionPlan
    from adrenoc.ir.options import resolve_options

    said = {**command_line, "float32_tensors": float32_tensors or None}
    return tuple(
        EditionPlan(
            member=member,
            options=resolve_options(member.target, preset=preset, command_line=said).options,
        )
        for member in members
    )


@dataclass(frozen=True, kw_only=True)
class _Compiled(EnteredModel):
    target: Target | DeviceSet = option(  # type: ignore[assignment]
        "--device",
        type=TARGETS,
        default="adreno",
        metavar="DEVICE",
        help=f"{DEVICE_HELP}; several between commas, `all`, or a file of [[device]] go into one "
        "bundle.",
    )
    shapes: tuple[tuple[str, tuple[int, ...]] | ShapeRange, ...] = shape_option(  # type: ignore[assignment]
        "Shape of an input with dynamic dimensions, ranges too (1..8, 64..256/64, 1|4); repeat it "
        "for more inputs.",
        type=Parsed(read_shape_or_range),
    )
    system: str | None = option(
        "--os",
        type=click.Choice(SYSTEMS),
        help="The system of the device; linux is for boards and laptops with a Snapdragon, arm64.  "
        "[default: android]",
    )
    output: Path | None = output_option(
        "Where the bundle goes, a file where it ends in .tar.  [default: MODEL's name with "
        ".adrenoc, here]",
        type=OutputPath(),
        metavar="PATH",
    )
    no_cache: bool = option("--no-cache", help="Neither read nor write the compile cache.")
    verbose: bool = option("--verbose", help="Show the stages of each phase, too.")
    explain: bool = option("--explain", help="Show where options come from, and all decisions.")
    policy_file: Path | None = option(
        "--precision-policy FILE",
        help="Keep the tensors in float32 that adrenoc check-accuracy found.",
    )
    accuracy: float | None = option(
        "--accuracy TOL",
        type=FiniteRange(min=0.0, min_open=True),
        help="Keep what it takes in float32 for an error of at most TOL of each output's range; "
        "runs the kernels and the reference here.",
    )
    folder: Path | None = inputs_option(
        "For --accuracy: sets of inputs, .npz or .npy files.  "
        "[default: four sets, made for the model]"
    )
    clml: str | None = option(
        "--clml",
        type=click.Choice(("auto", "all", "off")),
        help="Offload to Qualcomm's OpenCL ML: what wins after its copies, all it can, or "
        "nothing.  [default: off]",
    )
    tuning_log: str | None = option(
        "--tuning-log FILE",
        type=InputPath(as_text=True),
        help="Take the schedules that `adrenoc tune run` measured.",
    )
    context: int | None = context_option()
    prefill: str | None = option(
        "--prefill N,N,...",
        help="Of a decoder: tokens of a prompt that one run takes; of 8 or fewer, it also checks "
        "guesses.  [default: 16,128]",
    )
    tokenizer: Path | None = option(
        "--tokenizer FILE",
        help="Of a decoder: the tokenizer.json that goes into the bundle.  [default: the one "
        "beside MODEL, or in its container]",
    )
    kept: tuple[str, ...] = option(
        "--state PAST=PRESENT",
        help="Keep an output as the next run's input, in one memory; a * stands for many.  "
        "`none`: keep nothing.  [default: what exporters' names say]",
    )
    signature: tuple[str, ...] = option(  # type: ignore[assignment]
        "--signature",
        metavar="NAME",
        help="Of a TFLite file with several signatures: which; repeat it for more in one bundle, "
        "the first as the usual one, or `all`.  [default: the first graph's]",
    )
    fallback: str | None = option(
        "--fallback",
        type=click.Choice(("cpu",)),
        help="Of an int8 model, also carry code for the phone's CPU: the C API computes by it "
        "where there is no OpenCL device, or it refuses the kernels.",
    )
    onnxruntime: bool = option(
        "--onnxruntime",
        help="Also write NAME_ctx.onnx beside the bundle: onnxruntime opens it, and computes by "
        "the provider of `adrenoc runtime build --onnxruntime`.",
    )

    def __post_init__(self) -> None:
        if self.accuracy is None and self.folder is not None:
            raise click.UsageError("--inputs is for --accuracy TOL")
        if self.accuracy is not None:
            if self.policy_file is not None:
                raise click.UsageError(
                    "--accuracy finds a policy of its own: no --precision-policy"
                )
            if self.clml not in (None, "off"):
                raise click.UsageError(
                    "--accuracy pins tensors that a region of OpenCL ML would hide"
                )
        if self.devices[1] and (self.fallback or self.dump_dir):
            raise click.UsageError(
                "--fallback and ADRENOC_DUMP_DIR are for one --device, not for several"
            )

    @cached_property
    def dump_dir(self) -> Path | None:
        """Return the folder into which the IR is written after each stage. Raises OutputError where
        nothing can be written there."""
        folder = read_path("ADRENOC_DUMP_DIR")
        if folder is not None:
            OutputPath(is_folder=True).refuse(folder)
        return folder

    @cached_property
    def devices(self) -> tuple[Target, tuple[SetMember, ...]]:
        """Return what all devices have in common, and those with kernels of their own. Raises
        click.UsageError where --os comes with a device of this computer."""
        from adrenoc.target.device_set import put_on_system

        target = self.target
        if self.system is not None:
            if _split_set(target)[0].host:
                raise click.UsageError("--os is for GPUs of Snapdragons: --device adreno")
            target = put_on_system(target, self.system)
        return _split_set(target)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Return the signatures that `--signature` names, the usual one first. Raises
        click.UsageError for options that do not go with several."""
        keys = _choose_signatures(self.model, self.signature)
        _refuse_with_several(
            keys,
            [
                (self.accuracy, "--accuracy"),
                (self.policy_file, "--precision-policy"),
                (self.fallback, "--fallback cpu"),
                (self.onnxruntime, "--onnxruntime"),
                (self.devices[1], "a list of devices"),
            ],
        )
        return keys

    @property
    def entry(self) -> Entry:
        from adrenoc.importers.signature import Entry

        return Entry(fixed=self.fixed, signature="".join(self.keys[:1]))

    @cached_property
    def by_signature(self) -> tuple[ShapePlan, ...]:
        """Return the shapes of each of several signatures, the usual one last; none of one. Raises
        click.UsageError for options that do not go with several."""
        from adrenoc.importers.signature import read_signature

        several = self.keys if len(self.keys) > 1 else ()
        read = {key: read_signature(self.model, key) for key in several}
        plans = tuple(self._plan_signature(key, read) for key in reversed(several))
        # Of variables the file says that they are the same ones.
        known = {past for one in read.values() for past, _ in one.variables}
        states = [past for plan in plans for past, _ in plan.states if past not in known]
        ranges = [True for plan in plans if len(plan.buckets) > 1]
        _refuse_with_several(
            self.keys, [(states, f"a state ({', '.join(states)})"), (ranges, "a range of shapes")]
        )
        return plans

    def _plan_signature(self, key: str, read: Mapping[str, Signature]) -> ShapePlan:
        from adrenoc.cli.plan_shapes import plan_shapes

        shapes, entry = _select_for(key, read, self.shapes, self.entry)
        decoding = self.context, self.prefill
        return plan_shapes(self.model, shapes, decoding, self.kept, accurate=False, entry=entry)

    @cached_property
    def shaped(self) -> ShapePlan:
        """Return the choices of shapes and what is kept from run to run. Raises click.UsageError
        for options that do not go together."""
        from adrenoc.cli.plan_shapes import plan_shapes

        if self.by_signature:
            return self.by_signature[-1]
        shaped = plan_shapes(
            self.model,
            self.shapes,
            (self.context, self.prefill),
            self.kept,
            accurate=self.accuracy is not None,
            entry=self.entry,
            tokenizer=self.tokenizer,
        )
        if self.fallback is not None and shaped.caches:
            raise click.UsageError(
                "--fallback cpu keeps no caches from token to token: leave it out, or --state none "
                "with --shape for each input compiles one run behind a past of fixed length"
            )
        if shaped.states and (self.fallback is not None or self.onnxruntime):
            name = "--onnxruntime" if self.fallback is None else "--fallback cpu"
            raise click.UsageError(f"{name} keeps no states: --state none")
        if self.fallback is not None and len(shaped.buckets) > 1:
            raise click.UsageError(
                "--fallback cpu is for one choice of shapes: no ranges with --shape"
            )
        return shaped

    def said(
        self, policy: PrecisionPolicy | None, shaped: ShapePlan | None = None
    ) -> dict[str, Any]:
        """Return what the command line says of the compilation, of a signature with its shapes;
        None is what it leaves."""
        shaped = shaped or self.shaped
        return {
            **self.settings,
            "float32_tensors": policy.float32_tensors if policy else None,
            **shaped.options_of(shaped.buckets[-1]),
            "clml": self.clml,
            "tuning_log": self.tuning_log,
        }


@click.command("compile", cls=HeavyCommand)
@give_options(_Compiled)
def compile_command(given: _Compiled) -> None:
    """Compile MODEL (.onnx or .tflite) into a bundle for a DEVICE.

    For several (adreno:660,adreno:750, or `all`) the bundle has kernels of each, and common ones.
    Microcontrollers and CPUs have `adrenoc firmware compile`.
    """
    from adrenoc.cli.write_views import list_options, made_parts
    from adrenoc.ir.options import resolve_options

    target, _ = given.devices
    policy = policy_of(given.policy_file, given.model, given.preset)
    preset = policy.preset if policy else given.preset
    resolved = resolve_options(target, preset=preset, command_line=given.said(policy))
    if given.explain and not wants_json():
        console.draw(list_options(resolved))
        console.blank()
    detail = f"for {target.name}, preset {resolved.options.preset}"
    progress = console.show_progress(given.model.name, detail, verbose=given.verbose)
    with trace_time(), progress as reporter:
        made, plan = _compile(given, resolved, preset, policy, reporter)
    more: dict[str, Any] = {"origins": dict(resolved.origins)} if given.explain else {}
    fields = []
    if plan is not None:
        from adrenoc.pages.accuracy_page import finite, list_plan

        more["accuracy"], fields = finite(asdict(plan)), [*list_plan(plan)]
    parts = made_parts(made, explain=given.explain, more=fields)
    console.tell({**vars(made), **more}, parts)


def _compile(
    given: _Compiled,
    resolved: ResolvedOptions,
    preset: str | None,
    policy: PrecisionPolicy | None,
    reporter: Reporter,
) -> tuple[Made, AccuracyReport | None]:
    """Make the bundle, with the plan for a tolerance where one is asked for."""
    from adrenoc.bundle.onnx_context import context_file, write_onnx_context
    from adrenoc.compile.make import default_output, make_bundle
    from adrenoc.ir.options import resolve_options

    target, members = given.devices
    shaped, options = given.shaped, resolved.options
    several = (decision for one in given.by_signature for decision in one.decisions)
    decisions, plan = tuple(dict.fromkeys(several)) or shaped.decisions, None
    if given.accuracy is not None:
        plan, options, decisions = _meet(given, target, options, reporter)
    output = given.output or default_output(given.model)
    if given.onnxruntime:  # before the minutes of a compilation
        check_file_can_be_written(context_file(output))
    made = make_bundle(
        given.model,
        target=target,
        options=options,
        output=output,
        reporter=reporter,
        buckets=shaped.buckets if len(shaped.buckets) > 1 else (),
        signatures=[
            resolve_options(target, preset=preset, command_line=given.said(policy, one)).options
            for one in given.by_signature
        ],
        tar=output.suffix == ".tar",
        use_cache=not given.no_cache,
        dump_dir=given.dump_dir,
        chosen_before=decisions,
        with_fallback=given.fallback is not None,
        words=shaped.words,
        editions=_plan_editions(members, preset, given.said(policy), options.float32_tensors),
    )
    if given.onnxruntime:
        reporter.note(f"onnxruntime opens {write_onnx_context(output)}")
    return made, plan


def _meet(
    given: _Compiled, target: Target, options: CompileOptions, reporter: Reporter
) -> tuple[AccuracyReport, CompileOptions, tuple[Decision, ...]]:
    """Return the plan for a tolerance, the options with what it keeps, and its decisions."""
    from adrenoc.check.accuracy.judge_preset import (
        Wanted,
        decisions_of,
        place_of,
        read_plan,
        write_plan,
    )
    from adrenoc.check.inputs import input_files

    assert given.accuracy is not None
    files = () if given.folder is None else input_files(given.folder)
    wanted = Wanted(tolerance=given.accuracy, files=files)
    place = place_of(given.model, target, options, wanted)
    plan = None if given.no_cache else read_plan(place)
    if plan is not None:
        reporter.note("the search for accuracy was done before; it comes from the cache")
    else:
        from adrenoc.check.accuracy.judge_preset import meet_accuracy

        plan = meet_accuracy(
            given.model, target=target, options=options, wanted=wanted, reporter=reporter
        )
        if not given.no_cache:
            write_plan(place, plan, reporter)
    chosen = replace(options, float32_tensors=tuple(sorted(plan.float32_tensors)))
    return plan, chosen, decisions_of(plan)


_ALL = "all"


def _choose_signatures(model: Path, asked: Sequence[str]) -> tuple[str, ...]:
    """Return the signatures that `--signature` asks for, each once, in the order of the words.
    Raises click.UsageError where all of none are asked for, ModelNotFoundError or ModelFormatError
    where the file cannot be read."""
    if _ALL not in asked:
        return tuple(dict.fromkeys(asked))
    from adrenoc.importers.signature import list_signatures

    names = list_signatures(model)
    if _ALL in names:
        return tuple(dict.fromkeys(asked))
    if len(asked) > 1:
        raise click.UsageError(f"--signature {_ALL} names every one: no other --signature")
    if not names:
        raise click.UsageError(f"--signature {_ALL} is for TFLite files that list signatures")
    return names


def _refuse_with_several(keys: Sequence[str], others: Sequence[tuple[object, str]]) -> None:
    """Do nothing where one signature, or none, is asked for. `others` are values of options that
    several do not go with, and how each is typed. Raises click.UsageError where one of them was
    given, too."""
    given = next((words for value, words in others if value), None)
    if len(keys) > 1 and given is not None:
        raise click.UsageError(
            f"{given} is for one signature, and --signature names {len(keys)}: a bundle for each "
            "takes it"
        )


def _select_for(
    key: str, signatures: Mapping[str, Signature], shapes: AskedShapes, entry: Entry
) -> tuple[AskedShapes, Entry]:
    """Return the shapes and the settings that are of inputs of one of the signatures, `key`. A name
    that no signature has stays, for what refuses it."""
    inputs = {name: {port.name for port in one.inputs} for name, one in signatures.items()}
    others = set().union(*inputs.values()) - inputs[key]

    def is_own(name: str) -> bool:
        return name not in others

    mine = [one for one in shapes if is_own(one[0] if isinstance(one, tuple) else one.name)]
    fixed = tuple(pair for pair in entry.fixed if is_own(pair[0]))
    return mine, replace(entry, fixed=fixed, signature=key)
