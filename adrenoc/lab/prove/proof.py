"""A bundle carries its own proof: inputs that anybody can draw again, and what comes of them.

An app calls `adrenoc_verify` on a phone that nobody has tried: the runtime draws the inputs, runs
the model and compares with the numbers here (adrenoc/native/runtime/src/proof reads them).

proof.json
    reference       what computed the numbers: "onnxruntime 1.20.1"
    trials          one for each bucket, the smallest first
        inputs      (low + random % count) * step, by splitmix64 from `seed`
        outputs     each `stride`-th number from the `first` on, null where any will do;
                    `allowed` is the largest error, `may_differ` the share of numbers beyond it
"""

import json
import math
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from adrenoc.base.errors import BundleError, InputError
from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import PROOF, Bundle, put_files
from adrenoc.bundle.manifest import Manifest, TensorSpec
from adrenoc.check.generation import refuse_other_file
from adrenoc.check.inputs import whole_range
from adrenoc.check.own_rounding import Reference
from adrenoc.check.reference import run_reference
from adrenoc.check.runtimes import reference_version
from adrenoc.device.compare import Uncertainty, default_tolerance, holds_choices, scale_of
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.signature import read_fixed_inputs

SCHEMA_VERSION = 1
MOST_VALUES = 4096
"""The most values of an output that a proof holds: as good as all of them, and small."""
FLOATS = (-443, 887, 1 / 256)
"""Low, count and step of float inputs: a deviation of about one, in numbers that halves hold."""
_SLACK = 2.0
"""Beyond what `run --check` allows: a proof finds faults, and who judges precision is that."""
_ONE_MORE_DRAW = 1.5
"""By how much one more result may be beyond what the reference's own differ by."""


@dataclass(frozen=True, kw_only=True)
class DrawnInput:
    """Numbers (low + random % count) * step, by splitmix64 from a seed."""

    seed: int
    low: int
    count: int
    step: float

    def draw(self, spec: TensorSpec) -> np.ndarray:
        """Return the numbers, as the runtime draws them."""
        index = np.arange(1, math.prod(spec.shape) + 1, dtype=np.uint64)
        word = np.uint64(self.seed) + index * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word = (word ^ (word >> np.uint64(31))) % np.uint64(self.count)
        numbers = (self.low + word.astype(np.float64)) * self.step
        return numbers.astype(spec.dtype).reshape(spec.shape)


@dataclass(frozen=True, kw_only=True)
class ProvenOutput:
    """Some numbers of an output; `part` is what a user knows it by."""

    name: str
    part: str
    first: int
    stride: int
    values: tuple[float | None, ...]
    allowed: float
    may_differ: float


@dataclass(frozen=True, kw_only=True)
class ProofTrial:
    """The inputs and the right outputs of one bucket."""

    bucket: int
    inputs: tuple[DrawnInput, ...]
    outputs: tuple[ProvenOutput, ...]


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What a bundle has to compute; `left_out` are outputs that it says nothing of, with why."""

    reference: str
    trials: tuple[ProofTrial, ...]
    left_out: tuple[str, ...] = ()

    @property
    def values(self) -> int:
        """Numbers that are compared."""
        return sum(len(output.values) for trial in self.trials for output in trial.outputs)

    def to_json(self) -> str:
        """Return the text of the proof, as the bundle holds it."""
        plain = {
            "schema_version": SCHEMA_VERSION,
            "reference": self.reference,
            "trials": [asdict(trial) for trial in self.trials],
        }
        return json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n"


def put_proof(bundle: Bundle, model: Path, *, seed: int = 0) -> Proof:
    """Compute the reference of a bundle's model, and put its numbers into the bundle.

    Raises BundleError where it was made of another file, or keeps a state from run to run;
    InputError where an input is of a type that cannot be drawn, or nothing can be compared;
    DependencyError where what computes the reference is missing; OutputError where the bundle
    cannot be written.
    """
    refuse_other_file(bundle, model)
    states = [name for part in open_buckets(bundle) for name in part.manifest.states]
    if states:
        raise BundleError(
            f"{bundle.path} keeps {states[0]} from run to run, of which no single run is a proof",
            hint="check it as it generates: adrenoc run BUNDLE --prompt-ids 1,2,3 --check MODEL",
        )
    files = find_model_files(model)
    trials, left_out = [], set()
    for number, bucket in enumerate(open_buckets(bundle)):
        trial, left = _try_bucket(number, bucket.manifest, model, seed)
        trials.append(trial)
        left_out |= left
    proof = Proof(
        reference=reference_version(files.format),
        trials=tuple(trials),
        left_out=tuple(sorted(left_out)),
    )
    put_files(bundle, {PROOF: proof.to_json().encode("utf-8")})
    return proof


def _try_bucket(
    number: int, manifest: Manifest, model: Path, seed: int
) -> tuple[ProofTrial, set[str]]:
    drawn = {spec.name: _choose_numbers(spec, seed) for spec in manifest.inputs}
    inputs = {spec.name: drawn[spec.name].draw(spec) for spec in manifest.inputs}
    values = manifest.options.values
    said = tuple((name, text) for name, text in values.get("fixed", ()))
    shapes = tuple((name, tuple(dims)) for name, dims in values.get("shapes", ()))
    settings = read_fixed_inputs(model, said, values.get("signature", ""), shapes)
    expected = run_reference(model, {**inputs, **settings})
    known = Reference(model, {**inputs, **settings}, expected).uncertainty
    tolerance = default_tolerance(str(values["storage_dtype"]), str(values["compute_dtype"]))
    outputs, left = [], set()
    for spec in manifest.outputs:
        if expected[spec.name].shape != spec.shape:
            left.add(f"`{spec.name}`: how many numbers it has depends on the data")
            continue
        outputs.append(_sample_output(spec.name, expected[spec.name], known[spec.name], tolerance))
    if not any(value is not None for output in outputs for value in output.values):
        raise InputError(
            f"no output of {model} has a number on random inputs that a device could be held to",
            hint="adrenoc run BUNDLE --check MODEL --input FILE compares with inputs of yours",
        )
    return ProofTrial(bucket=number, inputs=tuple(drawn.values()), outputs=tuple(outputs)), left


def _choose_numbers(spec: TensorSpec, seed: int) -> DrawnInput:
    """Choose as `random_input` draws: floats of deviation one, whole numbers that index."""
    own = zlib.crc32(spec.name.encode()) << 16 | seed
    kind = np.dtype(spec.dtype).kind
    low, count, step = FLOATS
    if kind == "b":
        low, count, step = 0, 2, 1.0
    elif kind in "iu":
        low, last = whole_range(spec)
        count, step = last - low + 1, 1.0
    elif kind != "f":
        raise InputError(
            f"input '{spec.name}' has dtype {spec.dtype}, for which there are no random numbers",
            hint="adrenoc run BUNDLE --check MODEL --input NAME=FILE compares with yours",
        )
    return DrawnInput(seed=own, low=low, count=count, step=step)


def _sample_output(
    name: str, expected: np.ndarray, known: Uncertainty, tolerance: float
) -> ProvenOutput:
    """Return some numbers; any will do for those that the reference does not know well."""
    stride = _coprime_stride(expected.size)
    widths = known.widths(expected).ravel()
    allowed, may_differ = 0.0, 0.0
    if holds_choices(expected):
        may_differ = _SLACK * tolerance
    elif expected.size:
        usual = _ONE_MORE_DRAW * float(np.median(widths))
        allowed = max(_SLACK * tolerance * scale_of(expected), known.step, usual)
    told = zip(expected.ravel()[::stride], widths[::stride] <= allowed, strict=True)
    return ProvenOutput(
        name=name,
        part=f"the output `{name}`",
        first=0,
        stride=stride,
        values=tuple(_shorten(value) if is_known else None for value, is_known in told),
        allowed=allowed,
        may_differ=may_differ,
    )


def _shorten(value: np.generic) -> float | None:
    """Round to as few digits as tell it from its neighbours; None for what is no number."""
    if value.dtype.kind in "biu":
        return int(value)
    return float(f"{value:.9g}") if np.isfinite(value) else None


def _coprime_stride(count: int) -> int:
    """Return the least stride that keeps at most MOST_VALUES and has no factor of `count`."""
    stride = max(1, -(-count // MOST_VALUES))
    while math.gcd(stride, count) > 1:
        stride += 1
    return stride
