"""Options as the manifest of a bundle keeps them, and back."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from adrenoc.base.errors import BundleError
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.manifest import REBUILD_HINT
from adrenoc.bundle.tar import MANIFEST
from adrenoc.ir.options import TOKEN_OPTIONS, UNTOLD_WHERE_EMPTY, CompileOptions


def values_of(options: CompileOptions) -> dict[str, Any]:
    """Return all options but what differs between machines: the NDK's folder, the log's place."""
    values = asdict(options)
    del values["ndk"]
    for name in UNTOLD_WHERE_EMPTY:
        if not values[name]:
            del values[name]
    if options.tuning_log is not None:
        values["tuning_log"] = Path(options.tuning_log).name
    return values


def options_of(bundle: Bundle) -> CompileOptions:
    """Return the options that a bundle was compiled with.

    Raises:
        BundleError: another version of adrenoc had options that this one does not know.
    """
    values = dict(bundle.manifest.options.values)
    unknown = sorted(values.keys() - {field.name for field in fields(CompileOptions)})
    if unknown:
        raise BundleError(
            f"{bundle.root / MANIFEST} has the option '{unknown[0]}', which this version lacks: "
            "another one compiled the bundle",
            hint=REBUILD_HINT,
        )
    values["shapes"] = tuple((name, tuple(dims)) for name, dims in values["shapes"])
    for name in ("states", "caches", "recurrent", "fixed"):
        values[name] = tuple(tuple(pair) for pair in values.get(name, ()))
    for name in TOKEN_OPTIONS:
        values[name] = tuple(values.get(name, ()))
    values["forbid"] = tuple(values["forbid"])
    values["float32_tensors"] = tuple(values["float32_tensors"])
    return CompileOptions(**values)
