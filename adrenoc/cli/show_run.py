"""What `adrenoc run` shows of a result: tables for people, plain data for `--json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adrenoc.cli import console

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.device.compare import CheckResult
    from adrenoc.device.result import LaunchReport, RegionRun, RunResult

_SHOWN_KERNELS = 20
_UNTOLD = ("among_others", "trace")
"""What of a result is for checks and for views of its own."""


def run_to_json(result: RunResult, checked: CheckResult | None) -> dict[str, object]:
    """Return a result as plain data for `--json`."""
    outputs = {
        name: {"shape": array.shape, "dtype": str(array.dtype)}
        for name, array in result.outputs.items()
    }
    told = {name: value for name, value in vars(result).items() if name not in _UNTOLD}
    plain: dict[str, object] = {**told, "outputs": outputs}
    if checked is not None:
        plain["check"] = {
            "passed": checked.passed,
            "tolerance": checked.tolerance,
            "tensors": checked.tensors,
            "note": checked.note,
            "inputs": checked.fed,
        }
    return plain


def show_run(bundle: Bundle, result: RunResult, checked: CheckResult | None) -> None:
    """Show a result to people."""
    from adrenoc.bundle.talk import how_to_talk, is_decoder

    times = result.times
    held = result.memory_bytes
    memory = "" if held is None else f", {console.size(held)} of its memory"
    console.print_title(bundle.manifest.name, f"on {result.device}{memory}")
    columns = ("load", "build", "first", "cold", "p50", "p90", "p99", "runs")
    row = [console.ms(getattr(times, f"{name}_ms")) for name in columns[:-1]]
    console.print_table(columns, [(*row, str(times.runs))], right=columns)
    _show_circumstances(result)
    if result.regions:
        _show_regions(result)
    if result.nodes:
        _show_nodes(result)
    elif result.kernels:
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
        if is_decoder(bundle.manifest):
            how = how_to_talk(bundle.path, bundle.manifest)
            console.print_fields([("note", f"this was one step; {how} generates tokens")])
        return
    _show_check(checked)


def _show_check(checked: CheckResult) -> None:
    """Show the errors; beyond the tolerance those of the reference against itself, too."""
    figures: tuple[str, ...] = ("max error", "of the range", "RMSE", "cosine")
    rows: list[tuple[str, ...]] = [
        (
            tensor.name,
            console.dims(tensor.shape),
            f"{tensor.max_error:.2e}",
            f"{tensor.range_error:.2e}",
            f"{tensor.rmse:.2e}",
            f"{tensor.cosine:.6f}",
        )
        for tensor in checked.tensors
    ]
    if any(tensor.spread for tensor in checked.tensors):
        figures = (*figures, "step", "reference's own")
        rows = [
            (*row, f"{tensor.step:.2e}", f"{tensor.spread:.2e}")
            for row, tensor in zip(rows, checked.tensors, strict=True)
        ]
    console.print_table(("output", "shape", *figures), rows, right=figures)
    console.print_fields((tensor.name, tensor.accepted_as) for tensor in checked.accepted)
    if checked.fed:
        console.print_fields([("inputs", checked.fed)])
    if checked.note:
        console.print_fields([("reference", checked.note)])
    verdict = "agrees" if checked.passed else "does not agree"
    console.print_verdict(
        checked.passed, f"{verdict} with the reference (tolerance {checked.tolerance:.0e})"
    )


def _show_circumstances(result: RunResult) -> None:
    fields = []
    if (run := result.sustained) is not None:
        shown = (console.ms(run.p50_ms), console.ms(run.begin_p50_ms), console.ms(run.end_p50_ms))
        fields.append(
            (
                "sustained",
                f"p50 {shown[0]} ({shown[1]} at the begin, {shown[2]} at the end), "
                f"{run.runs} runs in {run.seconds:.0f} s, {run.pause_ms:.0f} ms between them",
            )
        )
    if (programs := result.programs) is not None:
        found = f"{programs.hits} of {programs.hits + programs.misses} came built"
        damaged = f", {programs.damaged} were kept in a form that is no use" * bool(
            programs.damaged
        )
        fields.append(("kernels", found + damaged))
    if (launching := result.launching) is not None:
        fields.append(("launching", _launching_text(launching)))
    fields += [("driver", str(hint)) for hint in result.hints]
    fields += [("GPU", str(state)) for state in result.gpu]
    fields += [("note", note) for note in result.notes]
    if fields:
        console.blank()
        console.print_fields(fields)


def _launching_text(launching: LaunchReport) -> str:
    calls = "1 OpenCL call" if launching.api_calls == 1 else f"{launching.api_calls} OpenCL calls"
    reason = f" ({launching.reason})" if launching.reason else ""
    return (
        f"{launching.launches} kernels by {launching.mode}{reason}: {calls} and "
        f"{launching.host_ms:.3f} ms of the host a run"
    )


def _copies(region: RegionRun) -> str:
    """Tell copies as `4 + 2, 1 shared`: at the border, inside, and tensors that need none."""
    shared = f", {region.shared} shared" if region.shared else ""
    return f"{region.border_copies} + {region.inner_copies}{shared}"


def _show_regions(result: RunResult) -> None:
    console.blank()
    console.print_table(
        ("region", "runs by", "operators", "copies", "memory", "CLML", "textures", "note"),
        [
            (
                region.symbol,
                f"{region.library} ({region.versions})" if region.used else "texture kernels",
                str(region.operators) if region.used else "",
                _copies(region) if region.used else "",
                console.size(region.memory_bytes) if region.used else "",
                "" if region.clml_ms is None else console.ms(region.clml_ms),
                "" if region.textures_ms is None else console.ms(region.textures_ms),
                region.tuning or region.reason,
            )
            for region in result.regions
        ],
        right=("operators", "copies", "memory", "CLML", "textures"),
    )


def _show_kernels(result: RunResult) -> None:
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
            for kernel in result.kernels
        ],
        right=("calls", "time", "share"),
        most=_SHOWN_KERNELS,
    )


def _show_nodes(result: RunResult) -> None:
    whole_ms = sum(node.time_ms for node in result.nodes)
    longest = sorted(result.nodes, key=lambda node: -node.time_ms)
    console.blank()
    console.print_table(
        ("node", "kernel", "time", "share", "GFLOPS", "GB/s", "of roofline"),
        [
            (
                console.short(node.node),
                node.kernel,
                console.ms(node.time_ms),
                f"{node.time_ms / whole_ms:.1%}" if whole_ms else "",
                f"{node.gflops:.1f}",
                f"{node.gb_per_s:.1f}",
                "" if node.of_roofline is None else f"{node.of_roofline:.1%}",
            )
            for node in longest
        ],
        right=("time", "share", "GFLOPS", "GB/s", "of roofline"),
        most=_SHOWN_KERNELS,
    )
