"""The last stage of every compilation: nothing is written that breaks a rule.

One function, whatever the target, the preset and the options: what a software device would refuse,
a phone might compute wrongly and say nothing.  The checks follow the program from the planning
graph to the text of its kernels, and each looks at what the stage before it made, not at what it
meant:

    graph      every tensor made once, before it is read; no image read by what writes it
    launches   each gives its kernel what the node reads and writes, of the declared shapes
    storage    what a launch reads is still in its slot, and fits there; images within limits
    module     the virtual machine launches these steps in this memory
    sources    the kernels' texts read and write the images that they are given for it, the
               numbers that the runtime gives them are such as it reads, and all of it is OpenCL C
"""

from __future__ import annotations

from adrenoc.base.decision import DecisionLog
from adrenoc.compile.pipeline.state import State, program_of, storage_of
from adrenoc.ir.program import Program
from adrenoc.kernels.codegen.build import kernel_sources, module_texts
from adrenoc.kernels.codegen.opencl_sharing import read_programs
from adrenoc.kernels.codegen.parse_opencl import find_front_end, parse_opencl
from adrenoc.passes.lower.plan_memory import Storage
from adrenoc.passes.lower.pool_textures import layer_grids
from adrenoc.passes.verify.check_graph import check_graph
from adrenoc.passes.verify.check_launches import check_kernels, check_launches
from adrenoc.passes.verify.check_module import check_module, check_storage
from adrenoc.passes.verify.check_sources import check_constants, check_sources
from adrenoc.target.gpu import Limits


def verify_step(state: State) -> State:
    """Check all of the finished program; the state is what it was.

    Raises:
        DefectError: naming what breaks which rule.
    """
    program, storage = program_of(state), {"": storage_of(state), **state.region_storage}
    check_plan(program, storage, state.target.limits)
    check_module(state.module, program, storage)
    grids = layer_grids(program, storage_of(state).places)
    check_sources(program, kernel_sources(state.executable), grids)
    texts = module_texts(state.executable.mod)
    check_constants(texts)
    _parse_texts(texts, state.log)
    return state


def _parse_texts(texts: list[str], log: DecisionLog) -> None:
    front_end = find_front_end()
    if front_end is None:
        why = "the package ziglang, whose clang does, is not installed (the extra link)"
        log.add("texts of kernels", "not parsed", why)
        return
    for text in texts:
        parse_opencl(front_end, read_programs(text))


def check_plan(program: Program, storage: dict[str, Storage], limits: Limits) -> None:
    """The checks of what can be known before any code is made; `storage` is by region.

    Raises:
        DefectError: naming what breaks which rule.
    """
    check_kernels(program, limits)
    for symbol, part in (("", program), *program.regions.items()):
        check_graph(part.graph, limits)
        check_launches(part, limits)
        check_storage(part, storage[symbol], limits)
