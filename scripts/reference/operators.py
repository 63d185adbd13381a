"""Operators of ONNX and TFLite that are translated, and the kernels that compute them."""

from collections.abc import Callable
from typing import Any

from scripts.reference.tables import cell, code, page, table


def pages() -> dict[str, str]:
    """Return a page for each format, and one of the kernels."""
    return {
        "operators/index.md": _kernels(),
        "operators/onnx.md": _onnx(),
        "operators/tflite.md": _tflite(),
    }


def _place(function: Callable[..., Any]) -> str:
    """Name the file that translates an operator."""
    module = getattr(function, "__module__", "") or ""
    return code(module.replace(".", "/") + ".py") if module.startswith("adrenoc") else ""


def _kernels() -> str:
    from adrenoc.kernels.families.operators import OPERATORS

    intro = (
        "An importer translates a model's operator to Relax. There it stays whole where a family "
        "of kernels has a record of it, below. Everything else is computed from its body, one "
        "element as one expression, by the family `maps`: four channels at a time, fused into what "
        "is read or written beside it. What no OpenCL kernel can compute runs on the CPU."
    )
    rows = [
        (
            code(name),
            cell(record.kind.value),
            code(record.relax) if record.relax else "made by passes",
            _place(record.rule),
        )
        for name, record in sorted(OPERATORS.items())
    ]
    return page(
        "Operators",
        "- [Operators of ONNX](onnx.md)\n- [Operators of TFLite](tflite.md)",
        "## Kernels",
        intro,
        table(("operator", "kind", "of Relax", "its rule"), rows),
    )


def _onnx() -> str:
    from onnx import defs

    from adrenoc.importers.onnx.contrib import REWRITES
    from adrenoc.importers.onnx.convert import OWN, supported_operators

    supported = supported_operators()
    standard = sorted({schema.name for schema in defs.get_all_schemas() if schema.domain == ""})
    rows = []
    for name in standard:
        has = name in supported
        place = _place(OWN[name]) if name in OWN else "TVM's frontend" if has else ""
        rows.append((code(name), "yes" if has else "no", place))
    count = sum(name in supported for name in standard)
    contrib = sorted(set(_contrib_operators()) | set(REWRITES))
    contrib_rows = [
        (
            code(name),
            "yes" if name in REWRITES else "no",
            _place(REWRITES[name]) if name in REWRITES else "",
        )
        for name in contrib
    ]
    intro = (
        f"{count} of the {len(standard)} operators that onnx {_version('onnx')} defines are "
        "translated. Functions of ONNX, loops of known length, and sequences and Ifs that are "
        "decided as the model is read are written out before, so that some of the others compile "
        "too. An operator may still refuse an attribute or a dtype: `adrenoc check MODEL` names "
        "all that cannot be, at once, and compiles nothing."
    )
    return page(
        "Operators of ONNX",
        intro,
        table(("operator", "translated", "by"), rows),
        "## com.microsoft",
        f"Of onnxruntime's own domain {len(REWRITES)} operators are written in standard ones.",
        table(("operator", "translated", "by"), contrib_rows),
    )


def _contrib_operators() -> list[str]:
    """List the schemas of onnxruntime's domain, where the package is installed."""
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ImportError:
        return []
    schemas = state.get_all_operator_schema()
    return [schema.name for schema in schemas if schema.domain == "com.microsoft"]


def _tflite() -> str:
    from tflite import BuiltinOperator

    from adrenoc.importers.tflite.converter import OPS
    from adrenoc.importers.tflite.untranslated import WHY_NOT

    names = sorted(name for name in vars(BuiltinOperator) if name.isupper())
    rows = [
        (
            code(name),
            "yes" if name in OPS else "no",
            _place(OPS[name]) if name in OPS else cell(WHY_NOT.get(name, "")),
        )
        for name in names
    ]
    count = sum(name in OPS for name in names)
    intro = (
        f"{count} of the {len(names)} built-in operators of tflite {_version('tflite')} are "
        "translated. Composites (`STABLEHLO_COMPOSITE`) are replaced by the operators that they "
        "stand for."
    )
    return page(
        "Operators of TFLite", intro, table(("operator", "translated", "by, or why not"), rows)
    )


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)
