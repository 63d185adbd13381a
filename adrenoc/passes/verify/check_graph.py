"""What the planning graph and the kernels' texts may hold.

The graph is checked between stages where the options ask for it, and at the end: all checks of a
finished compilation are in `adrenoc/compile/steps.py`.

Texts have to read and write the images that the launches give them for that.  This is the last
look: the text is what a phone's driver compiles.  Clang's own front end parses it before a bundle
is written.  One call takes all kernels: clang takes longer to start than to parse.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from adrenoc.base.errors import DefectError, ToolError
from adrenoc.base.files.aside import TemporaryFolder, temporary_name
from adrenoc.base.host.proc import run_tool
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES, TEXTURE, Memory
from adrenoc.ir.program import Kernel, Program
from adrenoc.kernels.codegen.opencl_sharing import Shared, read_programs
from adrenoc.kernels.codegen.opencl_source import ALIKE, IN_FILE, Grid
from adrenoc.kernels.families.operators import changed_input
from adrenoc.passes.analyse.reads import image_clash
from adrenoc.target.gpu import Limits


def check_image(name: str, physical: Sequence[int], limits: Limits) -> None:
    """Hold an image of physical shape `[layers, rows, columns, 4]` against the limits."""
    if not limits.hold_image(physical):
        layers, rows, columns, _ = physical
        raise DefectError(
            f"{name} is {columns} x {rows} texels in {layers} layers, at most {limits.image_text}"
        )


def check_graph(graph: Graph, limits: Limits | None = None) -> None:
    """Every tensor is made before it is read; with `limits`, every image exists on the target.
    Views lie inside of their base, and no kernel reads an image that it writes."""
    for name in graph.views:
        view = graph.views[name]
        part, whole = graph.operand(name), graph.operand(view.base)
        mine, other = part.extents, whole.extents
        if view.first < 0 or view.first + mine.blocks > other.blocks:
            raise DefectError(
                f"{name} begins at block {view.first} of {view.base}, and ends beyond"
            )
        if mine.c % LANES and view.first * LANES + mine.c != other.c:
            raise DefectError(
                f"{name} ends within a block of {view.base}, whose lanes are not zero"
            )
        if (mine.n, mine.h, mine.w) != (other.n, other.h, other.w):
            raise DefectError(f"{name} has other rows and columns than {view.base}")
        if (part.memory, part.dtype) != (whole.memory, whole.dtype) or (
            part.roles.order is not whole.roles.order
        ):
            raise DefectError(f"{name} lies in other memory than {view.base}")
    _check_order(graph)
    for name in graph.tensors if limits is not None else ():
        spec = graph.operand(name)
        if spec.memory is Memory.TEXTURE and limits is not None:
            check_image(name, spec.physical, limits)


def _check_order(graph: Graph) -> None:
    """Every tensor is made, once, before it is read."""
    known = {*graph.inputs, *(n for n, t in graph.tensors.items() if t.value is not None)}
    made: set[tuple[str, int]] = set()
    shared = {graph.owner(name) for name in graph.views}
    placed: Counter[str] = Counter()
    for node in graph.nodes:
        _check_node(node)
        for name in node.inputs:
            if graph.owner(name) not in known and not _blocks(graph, name, shared) <= made:
                raise DefectError(f"{node.name} reads {name} before it is made")
        _check_stores(graph, node)
        elsewhere = _count_placed_texels(graph, node)
        placed.update(elsewhere)
        for name in node.writes:
            e = graph.operand(name).extents if name in elsewhere else None
            if e is not None and placed[name] < e.n * e.blocks * e.h * e.w:
                continue  # another kernel writes the rest
            again = _blocks(graph, name, shared) & made
            if again and graph.owner(name) not in _changed_owners(graph, node):
                raise DefectError(f"{node.name} writes blocks of {name} a second time")
            made |= _blocks(graph, name, shared)
        if graph.placements and (clash := image_clash(graph, node)):
            raise DefectError(clash)
    for name in graph.outputs:
        if graph.owner(name) not in known and not _blocks(graph, name, shared) <= made:
            raise DefectError(f"nothing makes the output {name}")


def _changed_owners(graph: Graph, node: Node) -> set[str]:
    """Return the memory that a node changes a part of; none of most."""
    position = changed_input(node)
    changed = () if position is None else (node.inputs[position],)
    read = {graph.owner(name) for name in node.inputs}
    in_place = read.intersection(graph.owner(name) for name in node.also_writes)
    return in_place.union(graph.owner(name) for name in changed)


def _blocks(graph: Graph, name: str, shared: set[str]) -> set[tuple[str, int]]:
    """Return a tensor's blocks by the memory's owner; one where views do not share the memory."""
    owner, first = graph.place(name)
    if owner not in shared or graph.placements[owner].layout is None:
        return {(owner, 0)}
    return {(owner, first + i) for i in range(graph.operand(name).extents.blocks)}


def _check_stores(graph: Graph, node: Node) -> None:
    """Check that what a kernel writes beside its output are ranges of that."""
    for store in node.stores:
        if store.placing is not None:
            continue  # `_count_placed_texels` looks at those
        part, whole = graph.operand(store.tensor).extents, graph.operand(node.output).extents
        end = store.first + part.blocks
        if (
            store.first < 0
            or end > whole.blocks
            or (part.c % LANES and store.first * LANES + part.c != whole.c)
            or (part.n, part.h, part.w) != (whole.n, whole.h, whole.w)
        ):
            raise DefectError(f"{store.tensor} is no range of blocks of {node.output}")


def _count_placed_texels(graph: Graph, node: Node) -> Counter[str]:
    """Return texels of each tensor that a kernel places one by one."""
    found: Counter[str] = Counter()
    whole = graph.operand(node.output).extents if node.stores else None
    for store in node.stores:
        placing = store.placing
        if placing is None or whole is None:
            continue
        if store.first < 0 or store.first + placing.blocks > whole.blocks:
            raise DefectError(f"{store.tensor} is of blocks that {node.output} does not have")
        found[store.tensor] += placing.texels(whole)
    return found


def _check_node(node: Node) -> None:
    within = (Node.RESULT, Node.BESIDE)
    for body in node.bodies:
        stray = {n for n in body.sources.values() if n not in (*node.inputs, *within)}
        if stray:
            raise DefectError(f"{node.name} reads {sorted(stray)}, which are not its inputs")


_FUNCTION = re.compile(r"^static \w+ (\w+)\(", re.MULTILINE)
_MACRO = re.compile(r"^ *#define (\w+)", re.MULTILINE)
_ERROR = re.compile(r"^(\w+):(\d+):(\d+): (?:fatal )?error: (.*)$", re.MULTILINE)
_OPTIONS = (
    *("-x", "cl", "-cl-std=CL3.0", "-target", "spir64", "-fsyntax-only", "-w"),
    *("-Xclang", "-fdeclare-opencl-builtins", "-cl-no-stdinc"),
)
"""clang knows OpenCL's functions itself; the header that declares the types is in no package."""
_SIGNED = ("char", "short", "int", "long")
_SCALARS = (*_SIGNED, *(f"u{name}" for name in _SIGNED), "half", "float", "double")
_WIDTHS = (2, 3, 4, 8, 16)
_CONSTANTS = {
    "CLK_LOCAL_MEM_FENCE": "1",
    "CLK_GLOBAL_MEM_FENCE": "2",
    "CLK_NORMALIZED_COORDS_FALSE": "0",
    "CLK_ADDRESS_CLAMP": "4",
    "CLK_FILTER_NEAREST": "16",
    "INFINITY": "(__builtin_inff())",
    "NAN": '(__builtin_nanf(""))',
}


def parse_opencl(front_end: str, programs: Mapping[str, Shared]) -> None:
    """Parse the programs of a set of kernels, by the name of the kernel."""
    texts = {name: own.text for name, own in programs.items() if own.program == name}
    if not texts:
        return
    with TemporaryFolder("verify") as folder:
        source = folder / "kernels.cl"
        parts = (_alone(number, *text) for number, text in enumerate(texts.items()))
        source.write_text("".join([_declare_types(), *parts]), encoding="utf-8")
        try:
            run_tool([front_end, "clang", *_OPTIONS, str(source)], deed="parse the kernels")
        except ToolError as error:
            found = _ERROR.search(error.message)
            if found is None:
                raise
            name, line, column, said = found.groups()
            kept = temporary_name(f"adrenoc-{name}-").with_suffix(".cl")
            kept.write_text(texts[name], encoding="utf-8")
            raise DefectError(
                f"{name} is no OpenCL C: {said} (line {line}, column {column} of {kept})"
            ) from error


def _declare_types() -> str:
    """Return what OpenCL C has beside its functions, as far as kernels use it."""
    lines = [f"typedef unsigned {name} u{name};" for name in _SIGNED]
    lines += ["typedef __SIZE_TYPE__ size_t;", "typedef uint cl_mem_fence_flags;"]
    lines += [
        f"typedef {name} {name}{width} __attribute__((ext_vector_type({width})));"
        for name in _SCALARS
        for width in _WIDTHS
    ]
    lines += [
        f"#define as_{name}{width}(x) __builtin_astype((x), {name}{width})"
        for name in _SCALARS
        for width in ("", *_WIDTHS)
    ]
    lines += [f"#define {name} {value}" for name, value in _CONSTANTS.items()]
    return "\n".join(lines) + "\n"


def _alone(number: int, name: str, text: str) -> str:
    """Set a text apart from others of the same file: none lends it a name or clashes with it."""
    functions = _FUNCTION.findall(text)
    head = "".join(f"#define {function} {function}_{number}\n" for function in functions)
    foot = "".join(f"#undef {macro}\n" for macro in [*functions, *_MACRO.findall(text)])
    return f'{head}#line 1 "{name}"\n{text}\n{foot}'


_HEAD = re.compile(r"__kernel void \w+\(([^)]*)\)")
_CONSTANT = re.compile(r" (?:int|float) C\d+")
"""A last argument that no launch gives: the runtime sets it (kernels/codegen/opencl_sharing.py)."""
_INTS = range(-(2**31), 2**31)
_POINTER = "_ptr"
"""How TVM ends the name of a parameter that points to a tensor."""
_USED = re.compile(r"(read|READ|write)_(?:image|IMAGE)\w*\((\w+)")
_QUALIFIERS = {(False, True): "__write_only", (True, False): "__read_only"}
"""(is read, is written) -> how the image is declared; both at once is undefined."""


def check_sources(
    program: Program,
    sources: Mapping[str, str],
    layer_grids: Mapping[str, Mapping[str, Grid]] | None = None,
) -> None:
    """Hold each kernel's text against the launches.  `layer_grids` has, for the parameters of each
    kernel that are no arrays, how layers lie there."""
    written = {
        step.kernel: step.written
        for part in (program, *program.regions.values())
        for step in part.steps
        if step.place == "gpu"
    }
    for name, kernel in program.kernels.items():
        text = sources.get(name)
        head = None if text is None else _HEAD.search(text)
        if text is None or head is None:
            raise DefectError(f"there is no text of the kernel {name}")
        parameters = head.group(1).split(",")
        while _CONSTANT.fullmatch(parameters[-1]):
            parameters.pop()
        last = len(kernel.scopes) - written.get(name, 1)
        places = _places(kernel, parameters, last)
        used = set(_USED.findall(text))
        writes = {variable for verb, variable in used if verb == "write"}
        reads = {variable for verb, variable in used if verb != "write"}
        for place, parameter in zip(places, parameters, strict=True):
            *words, variable = _words(parameter)
            scope = kernel.scopes[place]
            grid = (layer_grids or {}).get(name, {}).get(variable.removesuffix(_POINTER))
            image = "image2d_array_t" if grid is None else "image2d_t"
            if (scope == TEXTURE) != (image in words):
                raise DefectError(f"{name} declares {variable} as {' '.join(words)}, not {scope}")
            if grid is not None:
                _check_places(name, variable, grid, sources[name])
            if scope == TEXTURE:
                _check_image(name, variable, words, place >= last, (reads, writes))


def check_constants(sets: Iterable[str]) -> None:
    """Hold the arguments that the runtime sets itself against what it reads: ints and floats."""
    for text in sets:
        for name, shared in read_programs(text).items():
            for kind, number in shared.constants:
                if not _is_read(kind, number):
                    raise DefectError(f"{name} has the constant {kind} {number}, beyond its type")


def _is_read(kind: str, number: str) -> bool:
    if kind == "int":
        return re.fullmatch(r"-?\d+", number) is not None and int(number) in _INTS
    with np.errstate(over="ignore"):
        return kind == "float" and number.endswith("f") and np.isfinite(np.float32(number[:-1]))


def _places(kernel: Kernel, parameters: list[str], last: int) -> list[int]:
    """Return which argument of a launch each declared parameter is.  TVM declares no parameter for
    an input that no element of the result comes from, as a part of a concatenation of which a slice
    takes others; those from `last` on are written, and all there."""
    if len(parameters) == len(kernel.scopes):
        return list(range(len(parameters)))
    known = {param.name: place for place, param in enumerate(kernel.func.params)}
    names = [_words(parameter)[-1:] for parameter in parameters]
    places = [known.get(name[0].removesuffix(_POINTER), -1) if name else -1 for name in names]
    missing = set(range(len(kernel.scopes))) - set(places)
    if -1 in places or places != sorted(set(places)) or any(place >= last for place in missing):
        raise DefectError(f"{kernel.name} declares {len(places)} arguments: {len(kernel.scopes)}")
    return places


def _words(parameter: str) -> list[str]:
    """Return how a parameter is declared, its name last."""
    words = parameter.replace("*", " ").split()
    return [word for word in words if word not in (ALIKE, IN_FILE)]


def _check_places(name: str, variable: str, grid: Grid, text: str) -> None:
    """Each read and write of an image without layers says how the layers lie."""
    numbers = ", ".join(rf"(?:{number}|C\d+)" for number in grid.numbers)
    expected = re.compile(rf"{grid.macro}\({numbers}, ")
    for found in re.finditer(rf"_image[fh]\({variable}, (?:image_sampler, )?", text):
        if not expected.match(text, found.end()):
            seen = text[found.end() :][:40]
            raise DefectError(f"{name} finds {variable}, of layers in {grid}, by {seen}...")


def _check_image(
    name: str, variable: str, words: list[str], out: bool, used: tuple[set[str], set[str]]
) -> None:
    """It is declared as what it is, and used so."""
    reads, writes = used
    if variable in writes and variable in reads:
        raise DefectError(f"{name} reads {variable}, an image that it writes")
    if variable in (reads if out else writes):
        raise DefectError(f"{name} {'reads' if out else 'writes'} {variable}, and should not")
    if _QUALIFIERS[(not out, out)] not in words:
        raise DefectError(f"{name} declares {variable} as {' '.join(words)}")
