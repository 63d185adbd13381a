"""Run models through RPC servers and compare each with its reference: one line a model and server.

    scripts/verify remote MODEL... [--repeat 3]

Servers: `adrenoc runtime serve`, the same offered at TVM's tracker, and TVM's own server with our
OpenCL runtime.  Each run is the command that a user types; a run that fails or does not agree ends
the script with 1.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adrenoc.base.errors import CheckFailedError
from scripts.verifying.commands import CommandError, adrenoc
from tests.runtime.servers import python_server, tvm_process, tvm_server

KEY = "host"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="adrenoc-remote-") as scratch:
        bundles = {model: compiled(model, Path(scratch)) for model in options.models}
        for title, serve in SERVERS.items():
            with serve() as where:
                for model, bundle in bundles.items():
                    line, good = run(bundle, model, where, options.repeat)
                    print(f"{title:14} {model.stem:16} {line}", flush=True)
                    failed += not good
    return 1 if failed else 0


def compiled(model: Path, folder: Path) -> Path:
    bundle = folder / f"{model.name}.adrenoc"
    adrenoc("compile", str(model), "--device", "host", "--output", str(bundle))
    return bundle


def run(bundle: Path, model: Path, where: list[str], repeat: int) -> tuple[str, bool]:
    words = ["run", str(bundle), *where, "--check", str(model), "--repeat", str(repeat)]
    try:
        told = adrenoc(*words, codes=(0, CheckFailedError.exit_code))
    except CommandError as error:
        return str(error), False
    error = max(tensor["range_error"] for tensor in told["check"]["tensors"])
    times, programs = told["times"], told["programs"]
    verdict = "agrees" if told["check"]["passed"] else "DOES NOT AGREE"
    line = (
        f"{verdict} ({error:.1e} of the range)  load {times['load_ms']:.0f} ms, "
        f"build {times['build_ms']:.0f}, first {times['first_ms']:.0f}, p50 {times['p50_ms']:.0f}; "
        f"{programs['hits']} of {programs['hits'] + programs['misses']} kernels came built; "
        f"{told['notes'][-1]}"
    )
    return line, told["check"]["passed"]


@contextmanager
def direct() -> Iterator[list[str]]:
    with python_server() as (_, port):
        yield ["--on", f"127.0.0.1:{port}"]


@contextmanager
def tracked() -> Iterator[list[str]]:
    with tvm_process("rpc_tracker") as port:
        where = f"127.0.0.1:{port}"
        with python_server("--tracker", where, "--key", KEY):
            yield ["--on", f"tracker:{KEY}@{where}"]


@contextmanager
def of_tvm() -> Iterator[list[str]]:
    with tvm_server() as port:
        yield ["--on", f"127.0.0.1:{port}"]


SERVERS = {"adrenoc runtime serve": direct, "TVM's tracker": tracked, "TVM's server": of_tvm}
