"""The suite has a case of every kernel family, and each makes the kernel that it is there for."""

from dataclasses import replace
from pathlib import Path

import pytest

from adrenoc.bundle.manifest import KernelInfo
from adrenoc.compile.pipeline import State
from adrenoc.device.fit import local_bytes
from adrenoc.ir.graph import Graph
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.kernels.families.shared.operator import Fusion, Kind
from adrenoc.lab.net import Net
from adrenoc.lab.prove.cases import Case, add_to
from adrenoc.lab.prove.suite import CASES, FEW_BYTES, FORMS, NOT_IN_MODELS, Suite, make_suite
from adrenoc.target.gpu import OPERATOR, OVERRIDES, Quirk
from adrenoc.target.target import Target, load_target
from tests.ir.planning import run_until

ROOT = Path(__file__).resolve().parents[2]
PLACES = (("adreno:750", "mixed"), ("adreno:660", "fp32"))


def _planned(case: Case, target: Target, preset: str, folder: Path) -> tuple[Graph, State]:
    net = Net()
    add_to(net, case)
    model = folder / "case.onnx"
    model.write_bytes(net.model())
    asked = {"int8_prompts": True, "keep_float32": False}
    state = run_until("split_winograd", model, target, preset=preset, **asked)
    assert state.graph is not None
    return state.graph, state


def test_every_family_of_the_registry_has_a_case():
    # Kernels of the cases of `winograd_multiply` and `n_bits_dot`.
    parts = {"winograd_tiles", "winograd_pixels", "round_tokens"}
    assert ({case.family for case in CASES} | parts | set(NOT_IN_MODELS)) == set(OPERATORS)


def test_what_is_left_out_is_what_no_importer_makes():
    texts = "".join(p.read_text() for p in (ROOT / "adrenoc/importers").rglob("*.py"))
    for name, reason in NOT_IN_MODELS.items():
        assert reason
        assert name == "cumprod" or f"{name}(" not in texts


def test_every_fused_form_has_a_case():
    assert {fusion.value for fusion in Fusion} <= {case.fusion for case in CASES}


def test_titles_are_unique():
    assert len({case.title for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_case_makes_the_kernel_that_it_is_there_for(case, tmp_path):
    seen = set()
    for name, preset in PLACES:
        graph, _ = _planned(case, load_target(name), preset, tmp_path)
        seen |= {node.op for node in graph.nodes}
    assert case.family in seen


@pytest.mark.parametrize(("texels", "bounds"), [(600, {8193, 2049}), (512, {2049}), (9, set())])
def test_less_local_memory_is_tried_where_kernels_share_more(texels, bounds):
    kernel = KernelInfo(
        name="k",
        family="conv2d",
        calls=1,
        scopes=(),
        work_group=(8, 8, 1),
        grid=(1, 1, 1),
        source=f"__local float4 held[{texels}];",
    )
    tried = [form.of(CASES[0], [kernel]) for form in FORMS]
    # 1 is none at all, which is tried where barriers may be at fault, however little is shared.
    assert {quirk.local_bytes_below for quirk in tried if quirk is not None} - {None} == bounds | {
        1
    }


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if OPERATORS[c.family].kind in (Kind.NORM, Kind.SOFTMAX)],
    ids=lambda case: case.title,
)
def test_teams_fit_little_local_memory(case, tmp_path):
    file = tmp_path / "few.toml"
    file.write_text(f"""title = "t"
base = "adreno:750"
[[quirks]]
name = "few"
text = "t"
source = "s"
local_bytes_below = {FEW_BYTES[-1] + 1}
""")
    suite = Suite(precision="mixed", memory="textures", cases=(case,))
    made = make_suite(suite, load_target(str(file)), tmp_path)
    held = [local_bytes(kernel.source) for kernel in made.bundle.kernels()]
    assert max(held) <= FEW_BYTES[-1]


def test_products_of_bytes_are_multiplied_as_bytes(tmp_path):
    """What else computes them, in floats, is another kernel."""
    cases = tuple(case for case in CASES if case.kernel)
    suite = Suite(precision="mixed", memory="textures", cases=cases)
    made = make_suite(suite, load_target("adreno:750"), tmp_path)
    kernels = [kernel.family for kernel in made.bundle.manifest.kernels]
    assert sorted(k for k in kernels if k.endswith("_dot")) == sorted(c.kernel for c in cases)


def _without(word: str) -> Target:
    target = load_target("adreno:750")
    quirk = Quirk(name="q", text="t", source="s", avoid=(word,))
    return replace(target, gpu=replace(target.gpu, quirks=(*target.gpu.quirks, quirk)))


_OF_NO_OPERATOR = ("map", "fold", "winograd_conv", "winograd_multiply")
"""What is left when all else is avoided, and what the word `winograd` avoids."""


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.family not in _OF_NO_OPERATOR], ids=lambda case: case.title
)
def test_an_operator_that_is_avoided_is_not_made(case, tmp_path):
    word = f"{OPERATOR}:{case.family}"
    graph, state = _planned(case, _without(word), "mixed", tmp_path)
    assert case.family not in {node.op for node in graph.nodes}
    told = [d for d in state.log if d.taken == f"without {word}"]
    assert [d.reason for d in told] == ["quirk q: s"]


@pytest.mark.parametrize("fusion", ["image", "mean", "prologue", "winograd"])
def test_a_form_that_is_avoided_is_not_made(fusion, tmp_path):
    case = next(case for case in CASES if case.fusion == fusion)
    word = fusion if fusion in OVERRIDES else f"fusion:{fusion}"
    before, _ = _planned(case, load_target("adreno:750"), "mixed", tmp_path)
    after, _ = _planned(case, _without(word), "mixed", tmp_path)
    assert [(n.op, n.inputs) for n in after.nodes] != [(n.op, n.inputs) for n in before.nodes]
