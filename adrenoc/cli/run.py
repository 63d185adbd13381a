"""`adrenoc run`: a bundle computes on a device of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.cli.options import InputParam, NumbersParam, json_option, path_argument

if TYPE_CHECKING:
    from adrenoc.bundle import Bundle
    from adrenoc.device.check import CheckResult
    from adrenoc.device.run import RunResult
    from adrenoc.inputs import InputFile

_SHOWN_KERNELS = 20


@click.command("run")
@path_argument("bundle")
@click.option(
    "--input",
    "files",
    type=InputParam(),
    multiple=True,
    metavar="[NAME=]FILE",
    help="An input: .npy, .npz, an image or raw bytes.  [default: seeded random numbers]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random inputs.")
@click.option("--mean", type=NumbersParam(), help="Subtract from image values (0 to 1).")
@click.option("--std", type=NumbersParam(), help="Divide image values by this after that.")
@click.option(
    "--layout",
    type=click.Choice(["NCHW", "NHWC"]),
    help="How an image lies in the input.  [default: by the extents]",
)
@click.option(
    "--cl-device",
    default="",
    metavar="NUMBER|NAME",
    help="OpenCL device (adrenoc doctor).  [default: the first with images]",
)
@click.option(
    "--rpc", "server", metavar="HOST:PORT", help="Run on the machine where `adrenoc serve` runs."
)
@click.option("--key", default="", help="The key that the server asks for.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Seconds to wait for any answer of the server.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Warm runs to time.",
)
@click.option("--profile", is_flag=True, help="Show the time of each kernel.")
@click.option(
    "--check",
    "reference",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="Compare with what onnxruntime or LiteRT computes from MODEL.",
)
@click.option(
    "--check-layers",
    "layers_of",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="Compare every layer with MODEL's, and name the first bad one.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0.0),
    help="Largest error over the output's range.  [default: 1e-4 in fp32, else 1e-2]",
)
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="FILE.npz", help="Write the outputs there."
)
@json_option()
@click.pass_context
def run_command(
    ctx: click.Context,
    bundle: Path,
    files: tuple[InputFile, ...],
    seed: int,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
    layout: str | None,
    cl_device: str,
    server: str | None,
    key: str,
    timeout_s: float,
    repeat: int,
    profile: bool,
    reference: Path | None,
    layers_of: Path | None,
    tolerance: float | None,
    save: Path | None,
    as_json: bool,
) -> None:
    """Run BUNDLE on an OpenCL device of this machine or of a server, time it and check it."""
    from adrenoc.bundle import open_bundle
    from adrenoc.cli import console
    from adrenoc.device.check import compare
    from adrenoc.device.run import run_bundle
    from adrenoc.errors import CheckFailedError
    from adrenoc.inputs import ImageOptions, make_inputs

    if server is not None and (profile or layers_of is not None):
        raise click.UsageError("--profile and --check-layers do not go with --rpc")
    opened = open_bundle(bundle)
    image = ImageOptions(mean=mean or (0.0,), std=std or (1.0,), layout=layout or "")
    inputs = make_inputs(opened.manifest.inputs, files, seed=seed, image=image)
    expected = None
    if reference is not None:
        from adrenoc.reference import run_reference

        expected = run_reference(reference, inputs)
    if server is None:
        result = run_bundle(opened, inputs=inputs, device=cl_device, repeat=repeat, profile=profile)
    else:
        from adrenoc.device.remote import RemoteAddress, run_remote

        address = RemoteAddress.parse(server, key=key, timeout_s=timeout_s)
        result = run_remote(opened, address, inputs=inputs, device=cl_device, repeat=repeat)
    if save is not None:
        _save(save, result)
    checked = None
    if expected is not None:
        limit = _default_tolerance(opened) if tolerance is None else tolerance
        checked = compare(result.outputs, expected, tolerance=limit)
    if layers_of is not None:
        from adrenoc.check_layers import check_layers

        with console.ConsoleReporter() as reporter:
            layers = check_layers(
                opened,
                layers_of,
                inputs,
                device=cl_device,
                tolerance=_default_tolerance(opened) if tolerance is None else tolerance,
                reporter=reporter,
            )
        checked = layers.result
    if as_json:
        console.print_json(_plain(result, checked))
        failed = checked is not None and not checked.passed
        ctx.exit(CheckFailedError.exit_code if failed else 0)
    _show(opened, result, checked)
    if layers_of is not None:
        layers.raise_if_failed()
    elif checked is not None:
        checked.raise_if_failed()


def _default_tolerance(bundle: Bundle) -> float:
    from adrenoc.device.check import default_tolerance

    values = bundle.manifest.options.values
    return default_tolerance(str(values["storage_dtype"]), str(values["compute_dtype"]))


def _save(path: Path, result: RunResult) -> None:
    from io import BytesIO

    import numpy as np

    from adrenoc.files import write_atomically

    buffer = BytesIO()
    arrays: dict[str, np.ndarray] = dict(result.outputs)
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())


def _plain(result: RunResult, checked: CheckResult | None) -> dict[str, object]:
    outputs = {
        name: {"shape": array.shape, "dtype": str(array.dtype)}
        for name, array in result.outputs.items()
    }
    plain: dict[str, object] = {
        "device": result.device,
        "times": result.times,
        "memory_bytes": result.memory_bytes,
        "outputs": outputs,
        "kernels": result.kernels,
    }
    if checked is not None:
        plain["check"] = {
            "passed": checked.passed,
            "tolerance": checked.tolerance,
            "tensors": checked.tensors,
        }
    return plain


def _show(bundle: Bundle, result: RunResult, checked: CheckResult | None) -> None:
    from adrenoc.cli import console

    times = result.times
    held = result.memory_bytes
    memory = "" if held is None else f", {console.size(held)} of its memory"
    console.print_title(bundle.manifest.name, f"on {result.device}{memory}")
    console.print_table(
        ("load", "build", "first", "cold", "p50", "p90", "p99", "runs"),
        [
            (
                console.ms(times.load_ms),
                console.ms(times.build_ms),
                console.ms(times.first_ms),
                console.ms(times.cold_ms),
                console.ms(times.p50_ms),
                console.ms(times.p90_ms),
                console.ms(times.p99_ms),
                str(times.runs),
            )
        ],
        right=("load", "build", "first", "cold", "p50", "p90", "p99", "runs"),
    )
    if result.kernels:
        _show_kernels(result)
    console.blank()
    if checked is None:
        console.print_table(
            ("output", "shape", "dtype"),
            [
                (name, console.dims(array.shape), str(array.dtype))
                for name, array in result.outputs.items()
            ],
        )
        return
    console.print_table(
        ("output", "shape", "max error", "of the range", "RMSE", "cosine"),
        [
            (
                tensor.name,
                console.dims(tensor.shape),
                f"{tensor.max_error:.2e}",
                f"{tensor.range_error:.2e}",
                f"{tensor.rmse:.2e}",
                f"{tensor.cosine:.6f}",
            )
            for tensor in checked.tensors
        ],
        right=("max error", "of the range", "RMSE", "cosine"),
    )
    verdict = "agrees" if checked.passed else "does not agree"
    console.print_verdict(
        checked.passed, f"{verdict} with the reference (tolerance {checked.tolerance:.0e})"
    )


def _show_kernels(result: RunResult) -> None:
    from adrenoc.cli import console

    whole_ms = sum(kernel.time_ms for kernel in result.kernels)
    console.blank()
    console.print_table(
        ("kernel", "calls", "time", "share"),
        [
            (
                kernel.name,
                str(kernel.calls),
                console.ms(kernel.time_ms),
                f"{kernel.time_ms / whole_ms:.1%}" if whole_ms else "",
            )
            for kernel in result.kernels[:_SHOWN_KERNELS]
        ],
        right=("calls", "time", "share"),
    )
    hidden = len(result.kernels) - _SHOWN_KERNELS
    if hidden > 0:
        console.print_fields([(f"and {hidden} more", "(--json lists all)")])
