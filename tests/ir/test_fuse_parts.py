"""When the product of a token joins the parts in which attention over a cache leaves it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.decoder_plan import plan_decoder
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import load_target
from tests.host.decoder_bundles import DecoderShape, write_decoder

EXTENTS: dict[str, Any] = {"context": 512, "hidden": 256, "head": 64, "mlp": 512, "layers": 1}


def plan_token(folder: Path, *, launch_us: float | None = None, **shape: Any) -> State:
    """One token's run on an Adreno 750, up to the stage."""
    model = write_decoder(folder, DecoderShape(**{**EXTENTS, **shape}))
    form = find_decoder(model)
    assert form is not None
    plan = plan_decoder(form, None, (16,))
    target = load_target("adreno:750")
    if launch_us is not None:
        told = replace(target.performance, launch_us=launch_us)
        target = replace(target, gpu=replace(target.gpu, performance=told))
    said = {"shapes": plan.buckets[0], "caches": plan.caches}
    options = resolve_options(target, preset="mixed", command_line=said).options
    start = State(model=model, target=target, options=replace(options, check_ir=True))
    return run_stages(start, reporter=SilentReporter(), stop_after="fuse_parts")[0]


def operators(state: State) -> list[str]:
    """Of the planned graph, in order."""
    return [node.op for node in state.graph.nodes]


@pytest.mark.parametrize("form", [{"bits": 4}, {"bits": 8, "zeros": True}, {"bits": 0}])
def test_the_product_of_a_token_joins_its_parts(tmp_path, form):
    state = plan_token(tmp_path, **form)
    made = operators(state)
    assert "join_parts" not in made
    product = state.graph.nodes[made.index("step_attention") + 1]
    assert product.attrs["joined"]
    assert product.inputs[0] == state.graph.nodes[made.index("step_attention")].output


def test_parts_are_joined_by_a_kernel_where_a_launch_takes_nothing(tmp_path):
    state = plan_token(tmp_path, launch_us=0.0)
    assert "join_parts" in operators(state)
    reasons = [d.reason for d in state.log if d.taken == "joins its parts in a kernel"]
    assert len(reasons) == 1
    assert "a launch 0" in reasons[0]
