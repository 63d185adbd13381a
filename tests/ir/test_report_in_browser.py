"""The HTML report is alive in a browser, also with 1,500 nodes."""

import re
import subprocess
from dataclasses import replace
from itertools import pairwise

import pytest

from adrenoc.bundle.manifest import RegionInfo
from adrenoc.pages.check_page.page import write_page
from tests.browsers import find_browser
from tests.patience import WAIT_S
from tests.unit.verdicts import node, verdict

USER = """<script>
const search = document.getElementById("search");
search.value = "tensor_777";
search.dispatchEvent(new Event("input"));
search.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
document.getElementById("colour").value = "time";
document.getElementById("colour").dispatchEvent(new Event("change"));
document.querySelector("#nodes th").click();
</script></body>"""
"""Finds a node, goes to it, colours by time, sorts by step: the last step comes first."""

REGION = RegionInfo(
    symbol="clml0_openclml",
    version=2,
    dtype="float16",
    operators=("nn.conv2d", "concat", "nn.conv2d"),
    inputs=("tensor_1498",),
    outputs=("tensor_1499",),
    kernels=(),
    copies=4,
    texture_us=300,
    clml_us=100,
    copies_us=50,
)


@pytest.mark.nightly
def test_the_page_draws_1500_nodes_in_a_browser(tmp_path):
    browser = find_browser()
    names = [f"tensor_{i}" for i in range(1500)]
    nodes = tuple(node(b, a) for a, b in pairwise(["input", *names]))
    path = tmp_path / "report.html"
    nodes = (*nodes[:-1], replace(nodes[-1], place="clml", kernel=REGION.symbol))
    made = verdict(nodes, broken=("10 MiB of GPU memory, 9 allowed",))
    write_page(replace(made, regions=(REGION,), kept_back=3), path)
    path.write_text(path.read_text(encoding="utf-8").replace("</body>", USER), encoding="utf-8")
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--virtual-time-budget=10000", f"--user-data-dir={tmp_path / 'profile'}"]
    ran = subprocess.run([*command, path.as_uri()], capture_output=True, timeout=WAIT_S, check=True)
    seen = ran.stdout.decode()
    assert 'data-ready="yes"' in seen  # the script came to its end
    assert seen.count("<canvas") >= 3
    assert seen.count('class="held"') + seen.count('class="held chosen"') == 1500
    assert seen.count("<tr data-node=") >= 1500
    assert '<section class="bad">broken: 10 MiB of GPU memory, 9 allowed</section>' in seen
    assert "1 of 1500" in seen
    assert "in 1 region; 3 operators kept back" in seen
    assert "nn.conv2d x2, concat</td>" in seen and "2.00 x</td>" in seen
    assert "<h3>tensor_777</h3>" in seen
    assert re.search(r'id="legend".{0,80}0.00 µs', seen)
    rows = re.findall(r'<tr data-node="(tensor_\d+)">', seen)
    # The region, the near miss, then the table of nodes.
    assert rows[:3] == ["tensor_1499", "tensor_0", "tensor_1499"]
