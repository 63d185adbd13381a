"""What a user chooses about a compilation, and where each choice came from.

Later layers win: the defaults of `CompileOptions`, the target's file, the preset's file, the
command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.base.errors import BundleError, OptionError, ShapeError
from adrenoc.base.files.read import data_folder, read_toml, sha256_file, sha256_json
from adrenoc.base.text.spelling import did_you_mean, quote_word
from adrenoc.bundle.manifest import REBUILD_HINT
from adrenoc.bundle.tar import MANIFEST
from adrenoc.ir.tuning_log import find_log
from adrenoc.target.gpu import NO_HALF_TYPE, OVERRIDES

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.target.target import Target

DEFAULT_PRESET = "mixed"
DTYPES = ("float32", "float16")
FORBIDDEN = ("buffer", "cpu")
CLML_MODES = ("auto", "all", "off")
CLML_VERSIONS = (1, 2, 3, 4, 5)
MOST_EXTENT = 2**31 - 1  # kernels count in 32 bits
OLDEST_ANDROID_API = 21  # the first level of arm64 Android

Shapes = tuple[tuple[str, tuple[int, ...]], ...]

SWITCHES = (
    "textures",
    "winograd",
    "native_functions",
    "untold_built_ins",
    "keep_float32",
    "check_ir",
    "expose_layers",
    "pool_textures",
    "int8_prompts",
)
SETTINGS = {
    "storage_dtype": "the dtype of tensors between kernels and of weights: float16 or float32",
    "compute_dtype": "the dtype of long products: float16 or float32",
    "textures": "tensors lie in textures where they fit (true), else all in buffers",
    "winograd": "3x3 convolutions are split into Winograd's transforms where that wins (true)",
    "pool_textures": "textures are parts of one buffer, where the driver can: less memory, and "
    "images that are linear (false)",
    "int8_prompts": "of a decoder: tokens of prompts are rounded to 8 bits, where the GPU has dot "
    "products and weights have 2, 4 or 8 bits: faster prompts, less exact (false)",
    "native_functions": "kernels that store halves use the GPU's own exponentials (true)",
    "untold_built_ins": "long products in halves may use the GPU's constant file or matrix units, "
    "where the target tells of them and the driver passes the runtime's trial (true)",
    "keep_float32": "what has no licence for halves stays in float32 (true)",
    "forbid": "fail where an operator would go there instead of to a texture: buffer, cpu",
    "max_memory_mib": "GPU memory to stay within: beyond it, plan again or fail",
    "clml_version": "the CLML interface of the device, 1 to 5 (the target's, else 3)",
    "android_api": "the oldest Android API level that the library loads on (24)",
    "ndk": "an Android NDK to link with (ANDROID_NDK_HOME, else any lld)",
    "check_ir": "check after each stage that the IR holds what the stage promises (false)",
}
"""What `--set` may say as presets do, and what it means; in brackets what holds where nothing is
said."""

TOKEN_OPTIONS = ("end_tokens", "suppress_tokens", "begin_suppress_tokens")
"""What a model's makers say of tokens."""
UNTOLD_WHERE_EMPTY = (
    *("states", "caches", "recurrent", "slack", "fixed", "signature"),
    *TOKEN_OPTIONS,
)
"""Options that are not told of where they are empty."""

ON_UNLESS_ASKED = (
    "native_functions",
    "untold_built_ins",
    "keep_float32",
)  # the same where they are on
OFF_UNLESS_ASKED = ("pool_textures", "int8_prompts")  # which are not told of where they are off
_EXTENT = re.compile(r"[0-9]{1,10}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("storage_dtype", "compute_dtype"), (DTYPES.__contains__, " or ".join(DTYPES))),
    **dict.fromkeys(SWITCHES, (lambda value: type(value) is bool, "true or false")),
    "forbid": (
        lambda value: isinstance(value, tuple) and set(value) <= set(FORBIDDEN),
        " or ".join(FORBIDDEN),
    ),
    "float32_tensors": (
        lambda value: isinstance(value, tuple) and all(_is_text(name) and name for name in value),
        "names of tensors",
    ),
    "clml": (CLML_MODES.__contains__, " or ".join(CLML_MODES)),
    "clml_version": (
        (None, *CLML_VERSIONS).__contains__,
        f"a whole number from {CLML_VERSIONS[0]} to {CLML_VERSIONS[-1]}",
    ),
    "max_memory_mib": (
        lambda value: value is None or (type(value) is int and value >= 1),
        "a number of MiB above 0",
    ),
    "preset": (_is_text, "the name of a preset"),
    "android_api": (
        lambda value: type(value) is int and value >= OLDEST_ANDROID_API,
        f"an Android API level from {OLDEST_ANDROID_API}",
    ),
    "tuning_log": (lambda value: value is None or _is_text(value), "a file"),
    "ndk": (lambda value: value is None or _is_text(value), "a folder"),
}
"""What a value has to be, and that in words."""


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """The choices of one compilation; `SETTINGS` says what those mean that it names."""

    preset: str = DEFAULT_PRESET
    storage_dtype: str = "float16"
    compute_dtype: str = "float32"
    """The dtype of long products' multiply-adds; all else computes in float32."""
    textures: bool = True
    winograd: bool = True
    native_functions: bool = True
    """Exponentials and reciprocals of kernels that store halves are the GPU's own, as far as halves
    tell them apart; else OpenCL's, which are right to the last bits."""
    untold_built_ins: bool = True
    """Long products in halves use what of the GPU its drivers do not tell of, the constant file or
    matrix units, where the target has them and the cost model says that they win."""
    keep_float32: bool = True
    """Where halves are stored: keep in float32 what has no licence for them.  Off, numbers may be
    wrong: so kernels are tested, and whether checks see it."""
    shapes: Shapes = ()
    """(input name, dimensions) for inputs with dynamic dimensions."""
    states: tuple[tuple[str, str], ...] = ()
    """(input, output) that is the same memory from run to run."""
    caches: tuple[tuple[str, str], ...] = ()
    """The same of a decoder whose past grows in the file, and has fixed rows in the bundle."""
    recurrent: tuple[tuple[str, str], ...] = ()
    """The same of a decoder's states that every token changes as a whole."""
    slack: int = 0
    """Of a decoder whose caches of a window hold the last rows alone: how many beyond it."""
    end_tokens: tuple[int, ...] = ()
    """Tokens after which a decoder has no more to say."""
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    """Tokens that it does not make as the first behind a prompt."""
    fixed: tuple[tuple[str, str], ...] = ()
    """(input name, value) of settings, which are constants of the bundle."""
    signature: str = ""
    """Of a TFLite file with several signatures, the one to compile; empty: its first graph's."""
    check_ir: bool = False
    forbid: tuple[str, ...] = ()
    max_memory_mib: int | None = None
    pool_textures: bool = False
    int8_prompts: bool = False
    expose_layers: bool = False
    """Make every tensor that the model names an output, for `run --check-layers`."""
    float32_tensors: tuple[str, ...] = ()
    """Tensors computed and stored in float32, whatever the preset: `--precision-policy`."""
    clml: str = "off"
    """Let Qualcomm's OpenCL ML library compute: `all` that it can, `auto` what wins, `off`."""
    clml_version: int | None = None
    tuning_log: str | None = None
    """File with schedules that `adrenoc tune run` measured."""
    android_api: int = 24
    ndk: str | None = None
    """Folder of an Android NDK to link with; changes nothing in what is compiled."""

    def __post_init__(self) -> None:
        for name, (is_good, expected) in _EXPECTED.items():
            if not is_good(value := getattr(self, name)):
                raise OptionError(
                    f"option {name}: seen {value!r}, expected {expected}",
                    hint="adrenoc compile --help",
                )
        if self.float32_tensors and self.clml != "off":
            raise OptionError(
                "a precision policy pins tensors that a region of OpenCL ML would hide: "
                f"seen a policy and clml {self.clml!r}, expected one of the two",
                hint="adrenoc compile MODEL --clml off --precision-policy FILE",
            )
        if (self.storage_dtype, self.compute_dtype) == ("float32", "float16"):
            raise OptionError(
                "float32 storage with float16 arithmetic keeps digits that nothing computes: "
                'storage_dtype is "float32", expected "float16" with compute_dtype "float16"',
                hint="adrenoc compile MODEL --preset fp16",
            )
        _check_shapes(self.shapes)

    def kept_values(self) -> dict[str, Any]:
        """Return what a bundle keeps: all but what differs between machines."""
        values = asdict(self)
        del values["ndk"]
        for name in UNTOLD_WHERE_EMPTY:
            if not values[name]:
                del values[name]
        if self.tuning_log is not None:
            values["tuning_log"] = Path(self.tuning_log).name
        return values

    @staticmethod
    def from_bundle(bundle: Bundle) -> CompileOptions:
        """Return the options that a bundle was compiled with."""
        values = dict(bundle.manifest.options.values)
        unknown = sorted(values.keys() - {field.name for field in fields(CompileOptions)})
        if unknown:
            raise BundleError(
                f"{bundle.root / MANIFEST} has the option '{unknown[0]}', which this version "
                "lacks: another one compiled the bundle",
                hint=REBUILD_HINT,
            )
        values["shapes"] = tuple((name, tuple(dims)) for name, dims in values["shapes"])
        for name in ("states", "caches", "recurrent", "fixed"):
            values[name] = tuple(tuple(pair) for pair in values.get(name, ()))
        for name in (*TOKEN_OPTIONS, "forbid", "float32_tensors"):
            values[name] = tuple(values.get(name, ()))
        return CompileOptions(**values)

    def digest(self) -> str:
        """SHA-256 of all that can change the compiled result: every option but `ndk`.  The order in
        which shapes were given does not count, and of a tuning log its text does."""
        values = self.kept_values()
        if self.max_memory_mib is None:
            del values["max_memory_mib"]
        for name in OFF_UNLESS_ASKED:
            if not values[name]:
                del values[name]
        for name in ON_UNLESS_ASKED:
            if values[name]:
                del values[name]
        del values["tuning_log"]
        if self.tuning_log is not None:
            values["tuning_log"] = _digest_of(self.tuning_log)
        return sha256_json({**values, "shapes": sorted(self.shapes)})


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named set of options out of `presets/`; `title` is one line for the user."""

    name: str
    title: str
    options: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class ResolvedOptions:
    """Options, and for each the layer that set it.  `origins` holds (option, origin) with an origin
    of "default", "target NAME", "preset NAME" or "command line", in the order of the fields of
    `CompileOptions`."""

    options: CompileOptions
    origins: tuple[tuple[str, str], ...]

    def origin_of(self, option: str) -> str:
        """Return the layer that set an option."""
        return dict(self.origins)[option]

    def explain(self) -> tuple[tuple[str, Any, str], ...]:
        """Return (option, value, origin) for each option: what `--explain` prints."""
        return tuple((name, getattr(self.options, name), origin) for name, origin in self.origins)


def load_preset(name: str, *, folder: Path | None = None) -> Preset:
    """Read one preset; `folder` is the data folder, by default the one of adrenoc."""
    folder = folder or data_folder("presets")
    known = sorted(path.stem for path in folder.glob("*.toml"))
    if name not in known:
        raise OptionError(
            f'unknown preset "{name}"{did_you_mean(name, known)}, expected {_either(known)}',
            hint="adrenoc presets",
        )
    path = folder / f"{name}.toml"
    try:
        data = read_toml(path)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{path} cannot be read as TOML: {error}",
            hint=f"correct {quote_word(path)}, then: adrenoc presets",
        ) from error
    title, options = data.pop("title", None), data.pop("options", {})
    if not isinstance(title, str) or not isinstance(options, dict) or data:
        raise OptionError(
            f'{path}: expected the keys "title" (a text) and [options] (a table), '
            f"seen title = {title!r}, options = {options!r}, others: {', '.join(data) or 'none'}",
            hint=f"correct {quote_word(path)}, then: adrenoc presets",
        )
    _check_names(options, str(path))
    return Preset(name=name, title=title, options=tuple(options.items()))


def list_presets(*, folder: Path | None = None) -> tuple[Preset, ...]:
    """Return all presets, by name."""
    folder = folder or data_folder("presets")
    return tuple(load_preset(path.stem, folder=folder) for path in sorted(folder.glob("*.toml")))


def resolve_options(
    target: Target,
    *,
    preset: str | None = None,
    command_line: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> ResolvedOptions:
    """Lay defaults, target, preset and command line over each other; quirks have the last word.
    `preset` None means the default one.  In `command_line`, None means that the user did not
    say."""
    chosen = load_preset(DEFAULT_PRESET if preset is None else preset, folder=folder)
    said = {name: value for name, value in (command_line or {}).items() if value is not None}
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (f"target {target.name}", dict(target.options)),
        (f"preset {chosen.name}", dict(chosen.options)),
        ("command line", said),
    ]
    values: dict[str, Any] = {"preset": chosen.name}
    origins = {field.name: "default" for field in fields(CompileOptions)}
    if preset is not None:
        origins["preset"] = "command line"
    for origin, layer in layers:
        _check_names(layer, origin)
        values.update(layer)
        origins.update(dict.fromkeys(layer, origin))
    for word, reason in target.avoided.items():
        for name, value in OVERRIDES.get(word, {}).items():
            if values.get(name, getattr(CompileOptions, name)) != value:
                values[name], origins[name] = value, reason
    stored = values.get("storage_dtype", CompileOptions.storage_dtype)
    of_target = {f"target {target.name}", *target.avoided.values()}
    lost = not values.get("textures", True) and origins["textures"] in of_target
    if lost and stored == "float16" and not target.limits.fp16:
        # Halves lay in textures alone, which need no half type.
        values["storage_dtype"] = "float32"
        origins["storage_dtype"] = f"{NO_HALF_TYPE}; {origins['textures']}"
    options = CompileOptions(**values)
    if options.compute_dtype == "float16" and not target.limits.fp16:
        raise OptionError(
            f'{target.title} has no half arithmetic (cl_khr_fp16): compute_dtype is "float16" '
            f'(from {origins["compute_dtype"]}), expected "float32"',
            hint=f"adrenoc compile MODEL --device {target.option} --preset mixed",
        )
    if options.storage_dtype == "float16" and not (options.textures or target.limits.fp16):
        raise OptionError(
            f"{target.title} has no half type (cl_khr_fp16), which buffers of halves need: with "
            f'textures = false storage_dtype is "float16" (from {origins["storage_dtype"]}), '
            'expected "float32"',
            hint=f"adrenoc compile MODEL --device {target.option} --preset mixed, with textures, "
            "or --preset fp32",
        )
    return ResolvedOptions(options=options, origins=tuple(origins.items()))


def read_setting(name: str, text: str) -> Any:
    """Read the text of one of `SETTINGS` as what the option holds; a wrong text stays as it is."""
    if name in SWITCHES:
        return {"true": True, "false": False}.get(text.lower(), text)
    if name in ("clml_version", "max_memory_mib", "android_api"):
        return int(text) if is_extent(text) else text
    return tuple(text.split(",")) if name == "forbid" else text


def show_setting(value: Any) -> str:
    """Return a value as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def list_entered(
    shapes: Iterable[tuple[str, Iterable[int]]],
    fixed: Iterable[tuple[str, str]],
    signature: str = "",
) -> list[str]:
    """Return the options for these shapes and constants, by this signature, as they are typed."""
    words = [
        f"--shape {quote_word(f'{name}:' + ','.join(map(str, dims)))}" for name, dims in shapes
    ]
    words += [f"--fix {quote_word(f'{name}={text}')}" for name, text in fixed]
    return words + ([f"--signature {quote_word(signature)}"] if signature else [])


def is_extent(text: str) -> bool:
    """Return whether a text is a whole number that an axis may have as its extent."""
    return bool(_EXTENT.fullmatch(text)) and int(text) <= MOST_EXTENT


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read `NAME:D,D,...` of the command line; the name may itself hold colons."""
    name, colon, dims = text.rpartition(":")
    numbers = [part.strip() for part in dims.split(",")]
    if not (colon and name and all(is_extent(part) for part in numbers)):
        raise ShapeError(
            f'--shape "{text}": expected NAME:D,D,... with whole numbers up to {MOST_EXTENT}',
            hint="adrenoc compile MODEL --shape input:1,3,224,224",
        )
    shape = (name, tuple(int(part) for part in numbers))
    _check_shapes((shape,))
    return shape


def _check_names(layer: Mapping[str, Any], origin: str) -> None:
    # A layer cannot choose the preset: which one is meant was settled before the layers are laid.
    known = [field.name for field in fields(CompileOptions) if field.name != "preset"]
    for name in layer:
        if name not in known:
            raise OptionError(
                f'{origin}: unknown option "{name}"{did_you_mean(name, known)}, '
                f"expected {_either(known)}",
                hint="adrenoc presets",
            )


def _digest_of(path: str) -> str:
    try:
        return sha256_file(find_log(path))
    except OSError as error:
        raise OptionError(
            f"the tuning log {path} cannot be read: {error.strerror or error}",
            hint=f"adrenoc tune run MODEL -o {quote_word(path)} makes one",
        ) from error


def _check_shapes(shapes: Shapes) -> None:
    seen = set()
    for name, dims in shapes:
        if not dims or not all(type(dim) is int and 0 <= dim <= MOST_EXTENT for dim in dims):
            raise ShapeError(
                f'shape of input "{name}": seen {list(dims)}, expected dimensions from 0 to '
                f"{MOST_EXTENT}",
                hint=f"adrenoc compile MODEL --shape {name}:1,3,224,224",
            )
        if name in seen:
            raise ShapeError(
                f'the shape of input "{name}" is given twice, expected once',
                hint="name each input in one --shape only",
            )
        seen.add(name)


def _either(names: list[str]) -> str:
    return "one of " + ", ".join(names)
