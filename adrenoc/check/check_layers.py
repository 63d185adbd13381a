"""Compare a bundle with its model layer by layer, to name the first tensor that goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.base.errors import CheckFailedError
from adrenoc.base.files.temporary import TemporaryFolder
from adrenoc.base.reporter import Reporter
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.check.compiled_from import refuse_other_file
from adrenoc.check.quanta import read_quanta
from adrenoc.check.reference import run_reference
from adrenoc.check.runtimes import tensor_names
from adrenoc.compile.bundle_options import options_of
from adrenoc.compile.make import make_bundle
from adrenoc.device.compare import CheckResult, TensorCheck, compare, hint_of_failure
from adrenoc.device.compiled_for import target_of
from adrenoc.device.uncertainty import Uncertainty

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class LayerCheck:
    """The comparison of each named tensor, in execution order; the model's outputs come last."""

    result: CheckResult

    @property
    def first_bad(self) -> TensorCheck | None:
        """The first tensor beyond the tolerance."""
        return next((t for t in self.result.tensors if not t.passed), None)

    def raise_if_failed(self, *, in_float32: bool = False) -> None:
        """Do nothing if every layer passed; of what is `in_float32` rounding is no excuse.

        Raises:
            CheckFailedError: naming the first layer that did not.
        """
        bad = self.first_bad
        if bad is not None:
            raise CheckFailedError(
                f"the first layer that disagrees with the reference is `{bad.name}`: {bad.reason}",
                hint="report it with the model, or allow more with --tolerance"
                if in_float32
                else hint_of_failure(in_float32),
            )


def check_layers(
    bundle: Bundle,
    model: Path,
    inputs: Mapping[str, np.ndarray],
    *,
    run: Callable[[Bundle], Mapping[str, np.ndarray]],
    tolerance: float,
    reporter: Reporter,
) -> LayerCheck:
    """Compile `model` again as `bundle` was, with every layer as an output, run and compare.

    The kernels are those of the bundle; only the copies to the host are added.  `run` computes the
    outputs of a bundle from `inputs`, here or on a server.

    Raises:
        BundleError: the bundle was made from another model file.
    """
    refuse_other_file(bundle, model)
    options = replace(options_of(bundle), expose_layers=True)
    with TemporaryFolder("layers") as scratch:
        made = make_bundle(
            model,
            target=target_of(bundle),
            options=options,
            output=Path(scratch) / "layers.adrenoc",
            reporter=reporter,
            use_cache=False,
        )
        outputs = run(open_bundle(made.path))
    own = [spec.name for spec in bundle.manifest.outputs]
    # What the importer made up, as the parts of one operator, has nothing to be compared with.
    known = tensor_names(model)
    layers = [name for name in outputs if name not in own and name in known]
    expected = run_reference(model, inputs, tensors=layers)
    ordered = {name: outputs[name] for name in (*layers, *own)}
    comparable = {
        name: value for name, value in ordered.items() if expected[name].shape == value.shape
    }
    stated = read_quanta(model)
    quanta = {} if stated is None else stated.tensors
    steps = {n: Uncertainty(step=step, step_is="one quantum") for n, step in quanta.items()}
    return LayerCheck(result=compare(comparable, expected, tolerance=tolerance, known=steps))
