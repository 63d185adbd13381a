"""The facts of one GPU: what kernels may ask for, what it does in a clock, what it does wrong.

The least time that a GPU can need for given work is a roofline of these figures (`Roofline`).
Three pipes work side by side, so the busiest one bounds the time:

    time = max(flops / ALU rate, texels / texture rate, bytes / DRAM bandwidth)

    ALU rate        fp32_fma_lanes * 2 * clock_mhz, times fp16_rate for half arithmetic
    texture rate    texels_per_clock * clock_mhz, of half and float texels alike
    DRAM bandwidth  dram_gb_per_s

It is a floor, not a forecast: caches, occupancy, latency and address arithmetic only add to it,
and so does the gap between two kernels: what the target has for it (`launch_us`) is shown beside
the floor, as `adrenoc check` does.

One rule for both models of time in the house: nothing is chosen by floors.  Choices are made by the
estimates of schedules (`adrenoc/kernels/families/`), which hold every bound above at the same
rates, DRAM's of the planes between Winograd's three kernels among them, and add registers, waits
and launches.  The floor of the way that is not chosen may be the lower one: no schedule of a direct
3x3 convolution comes near its own, while one of Winograd's that waits for DRAM is at it.

A rate that the target's file does not state leaves its bound out, and `missing` names it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OPENCL_C_VERSIONS = ("2.0", "3.0")
DERIVED = {"derived": True}
"""The mark of a field that follows from other tables of the file, and is no key there."""

FILE_VECTOR_BYTES = 16
"""What a wave copies to the constant file at a time."""

MATRIX_SIDE = 16
"""Rows, columns and terms of the tiles that matrix units multiply, as `prelude.cl` has them."""

WorkGroup = tuple[int, int, int]


NO_HALF_TYPE = "the device has no half type (cl_khr_fp16), which buffers of halves need"
"""Why something that lies in a buffer is float32 there."""


@dataclass(frozen=True, kw_only=True)
class ConstantFile:
    """What waves may fill of the file that instructions take constants from."""

    bytes: int
    """Of all waves that share it."""
    waves: int
    """The most waves that share it, each of which has a number below that."""

    def slots(self, vectors: int) -> int:
        """Return how many waves have so many vectors of 16 bytes at a time."""
        return min(self.waves, self.bytes // (vectors * FILE_VECTOR_BYTES))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What an OpenCL kernel may ask of the device.  None: not known, so not to be relied on."""

    image2d_max_width_texels: int
    image2d_max_height_texels: int
    image_max_array_layers: int
    image_pitch_align_texels: int
    """Row pitch of an image made from a buffer is a multiple of this."""
    max_read_image_args: int
    max_write_image_args: int
    max_kernel_args: int
    max_kernel_args_bytes: int
    max_work_group_size: int
    """Work-items; a heavy kernel may get fewer, which only the built kernel tells."""
    max_work_item_sizes: tuple[int, ...] | None = None
    """Work-items of a group in x, y, z; None where each may have as many as the whole group."""
    local_mem_bytes: int
    max_alloc_bytes: int | None = None
    """The most bytes of one buffer or image."""
    fp16: bool
    """The half type (cl_khr_fp16): arithmetic, and buffers of halves.  Half images that are read as
    float need no such thing."""
    dot_product: bool | None = None
    """The hardware has a four-way 8-bit dot product; the driver's extensions say how to use it."""
    opencl_c: str
    """Language version to build kernels with: "2.0" or "3.0"."""
    banned_work_groups: tuple[WorkGroup, ...] = field(default=(), metadata=DERIVED)
    """Shapes that give wrong results: those of all quirks."""

    @property
    def group_sides(self) -> WorkGroup:
        """Return the most threads of a group in x, y, z."""
        x, y, z = self.max_work_item_sizes or (self.max_work_group_size,) * 3
        return x, y, z

    def refuse_group(self, group: WorkGroup) -> str | None:
        """Return why work-groups of this shape cannot run; None where they can."""
        shown = " x ".join(map(str, group))
        if group in self.banned_work_groups:
            return f"work-groups of {shown} give wrong values on the target"
        if (threads := math.prod(group)) > self.max_work_group_size:
            return f"{threads} threads a work-group, at most {self.max_work_group_size}"
        if any(side > most for side, most in zip(group, self.group_sides, strict=True)):
            most = " x ".join(map(str, self.group_sides))
            return f"work-groups of {shown}, whose sides are at most {most}"
        return None

    def hold_image(self, physical: Sequence[int]) -> bool:
        """Return whether there are images of this `[layers, rows, columns, 4]`."""
        layers, rows, columns, _ = physical
        most = self.image_max_array_layers, self.image2d_max_height_texels
        return columns <= self.image2d_max_width_texels and layers <= most[0] and rows <= most[1]

    @property
    def image_text(self) -> str:
        """Return the largest image in words."""
        sides = f"{self.image2d_max_width_texels} x {self.image2d_max_height_texels}"
        return f"{sides} in {self.image_max_array_layers}"

    def buffer_dtype(self, dtype: str) -> str:
        """Return what a buffer holds of a dtype: floats of halves where there is no half type."""
        return "float32" if dtype == "float16" and not self.fp16 else dtype

    @property
    def dot_instructions(self) -> int:
        """Instructions of a dot product of four bytes: two if the GPU multiplies two at a time."""
        return 2 if self.dot_product is False else 1


@dataclass(frozen=True, kw_only=True)
class Performance:
    """Figures for a cost model, each None where no source gives it."""

    compute_units: int | None = None
    """Shader processors; what OpenCL reports as compute units."""
    micro_sps_per_compute_unit: int | None = None
    registers_vec4_per_fiber_slot: int | None = None
    """Register rows (4 x 32 bit) of one micro-SP, shared by the waves that run there."""
    wave_sizes: tuple[int, ...] | None = None
    wave_granularity: int | None = None
    max_waves_per_compute_unit: int | None = None
    """The most waves that one micro-SP keeps, however few registers they take."""
    fp32_fma_lanes: int | None = None
    """FP32 multiply-adds of the whole GPU a clock."""
    fp16_rate: float | None = None
    """FP16 multiply-add rate over the FP32 rate, where kernels run as waves of 128."""
    clock_mhz: int | None = None
    texels_per_clock: float | None = None
    """Texels of four halves that kernels read a clock, all processors together."""
    dram_gb_per_s: float | None = None
    launch_us: float | None = None
    """Of one more kernel in a queue: until the one before is done, its caches are written back, and
    this one's first waves run.  Every cost model takes it from here (`targets/assumed.toml`)."""
    host_launch_us: float | None = None
    """What a launch takes the host, where that is longer: the GPU waits for it between kernels that
    are shorter still, so that two made one save it."""
    texel_weights: bool | None = None
    """Whether weights that few threads share come faster as texels than from a buffer."""
    split_winograd_least_pixels: int | None = None
    """The fewest output pixels for which Winograd's three kernels are worth their launches."""
    constant_file_bytes: int | None = None
    """Of the constant file that waves may fill, with the built-ins that Qualcomm's drivers have."""
    constant_file_waves: int | None = None
    """The most waves that share those bytes."""
    matrix_units: bool | None = None
    """Whether units multiply tiles of halves, of `MATRIX_SIDE` rows, columns and terms."""

    @property
    def constant_file(self) -> ConstantFile | None:
        """Return what waves may fill of the constant file; None where that is not known."""
        if self.constant_file_bytes is None or self.constant_file_waves is None:
            return None
        return ConstantFile(bytes=self.constant_file_bytes, waves=self.constant_file_waves)


@dataclass(frozen=True, kw_only=True)
class Quirk:
    """Something that a device or its drivers do wrong.

    `banned_work_groups` lists (x, y, z) shapes that give wrong results; work-groups of
    `work_group_items_below` work-items or more fail, images of `image_extent_below` texels or more
    a side, and kernels that share `local_bytes_below` bytes or more of local memory.
    `work_item_sizes` is the most in x, y, z that a work-group may have.  `avoid` are
    words of `adrenoc/target/gpu.py` for what else goes wrong.
    """

    name: str
    text: str
    source: str
    banned_work_groups: tuple[WorkGroup, ...] = ()
    work_group_items_below: int | None = None
    image_extent_below: int | None = None
    local_bytes_below: int | None = None
    work_item_sizes: tuple[int, ...] = ()
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU, or the `adreno` that stands for all of them."""

    name: str
    """File name without its ending: "750", "642l", "host", or "adreno"."""
    title: str
    generation: str
    limits: Limits
    performance: Performance
    extensions: tuple[tuple[str, bool], ...] = ()
    """(OpenCL extension, listed by the drivers seen); the runtime still has to ask the device."""
    clml_version: int | None = None
    """The OpenCL ML interface that its drivers are known to have."""
    quirks: tuple[Quirk, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Soc:
    """A chip that carries a GPU."""

    name: str
    title: str
    aliases: tuple[str, ...]
    gpu: str
    clock_mhz: int | None = None


NATIVE_FUNCTIONS = "native-functions"
"""The GPU's own exponential and reciprocal, of kernels that store halves
(`adrenoc/kernels/function_digits.py`)."""
UNTOLD_BUILT_INS = "untold-built-ins"
"""The constant file and matrix units (`adrenoc/kernels/families/conv`: `built_in_conv.py`)."""
OVERRIDES: Mapping[str, Mapping[str, Any]] = {
    "textures": {"textures": False},
    "half-storage": {"storage_dtype": "float32", "compute_dtype": "float32"},
    "half-arithmetic": {"compute_dtype": "float32"},
    "winograd": {"winograd": False},
    NATIVE_FUNCTIONS: {"native_functions": False},
    UNTOLD_BUILT_INS: {"untold_built_ins": False},
}
"""Feature -> the options that do without it."""
OPERATOR, FUSION = "operator", "fusion"
HALF_DENORMALS = "half-denormals"
"""Halves below 6.1e-5, which a device may take for zero."""
DOT_PRODUCTS = "dot-products"
"""Products of four bytes at once."""
FUSIONS = ("image", "mean", "prologue")
FEATURES = (*OVERRIDES, HALF_DENORMALS, DOT_PRODUCTS, *(f"{FUSION}:{name}" for name in FUSIONS))


def is_word(word: object) -> bool:
    """Return whether it is one of `FEATURES`, or an operator by a name such as it may have."""
    if not isinstance(word, str):
        return False
    kind, colon, name = word.partition(":")
    return word in FEATURES or (kind == OPERATOR and bool(colon) and name.isidentifier())


def collect_avoided(quirks: tuple[Quirk, ...]) -> dict[str, str]:
    """Word -> why, of all quirks; the first one that has it says why."""
    found: dict[str, str] = {}
    for quirk in quirks:
        for word in quirk.avoid:
            found.setdefault(word, describe_quirk(quirk))
    return found


def describe_quirk(quirk: Quirk) -> str:
    """Return a quirk as a reason."""
    return f"quirk {quirk.name}: {quirk.source}"


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a kernel has to do, whatever its schedule.  `flops` counts a multiply-add as two, `half`
    says in which precision; `texels` are those that the kernel reads; `bytes_read` and
    `bytes_written` count each tensor once, which is the least that goes over the memory bus."""

    flops: int = 0
    half: bool = False
    texels: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Microseconds on each pipe, None where the target gives no rate; `time_us` is the floor.
    `bound` names what decides: `alu`, `texture`, `dram`, or "" where nothing is known."""

    time_us: float | None = None
    bound: str = ""
    alu_us: float | None = None
    texture_us: float | None = None
    dram_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The rates of one GPU, each for a microsecond; None where its file does not say.  `missing`
    are the keys of the target's file that would fill the gaps."""

    flops_per_us: float | None
    half_flops_per_us: float | None
    texels_per_us: float | None
    bytes_per_us: float | None
    launch_us: float | None
    missing: tuple[str, ...]

    @staticmethod
    def from_performance(performance: Performance) -> Roofline:
        """Return the rates that follow from a target's figures."""
        p = performance
        flops = _product(p.fp32_fma_lanes, 2, p.clock_mhz)
        return Roofline(
            flops_per_us=flops,
            half_flops_per_us=_product(flops, p.fp16_rate),
            texels_per_us=_product(p.texels_per_clock, p.clock_mhz),
            bytes_per_us=_product(p.dram_gb_per_s, 1e3),
            launch_us=p.launch_us,
            missing=tuple(f"performance.{k}" for k in _USED if getattr(p, k) is None),
        )

    def estimate(self, work: Work) -> Estimate:
        """Return the floor for one launch of this work."""
        flops_rate = self.half_flops_per_us if work.half else self.flops_per_us
        bounds = {
            "alu": _quotient(work.flops, flops_rate),
            "texture": _quotient(work.texels, self.texels_per_us),
            "dram": _quotient(work.bytes_read + work.bytes_written, self.bytes_per_us),
        }
        known = {name: time_us for name, time_us in bounds.items() if time_us is not None}
        bound = max(known, key=lambda name: known[name]) if known else ""
        return Estimate(
            time_us=known[bound] if known else None,
            bound=bound,
            alu_us=bounds["alu"],
            texture_us=bounds["texture"],
            dram_us=bounds["dram"],
        )


_USED = ("fp32_fma_lanes", "fp16_rate", "clock_mhz", "texels_per_clock", "dram_gb_per_s")


def _product(*factors: float | None) -> float | None:
    result = 1.0
    for factor in factors:
        if factor is None:
            return None
        result *= factor
    return result


def _quotient(amount: float, rate: float | None) -> float | None:
    return None if rate is None else amount / rate
