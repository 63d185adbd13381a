"""Run models through RPC servers, each as `verify models --numbers-only` does.

    scripts/verify remote MODEL... [options of verify models]

Servers: `adrenoc runtime serve`, the same offered at TVM's tracker, and TVM's own server with our
OpenCL runtime.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from scripts.verifying import models
from tests.runtime.servers import python_server, tvm_process, tvm_server

KEY = "host"


def main() -> int:
    failed = 0
    for title, serve in SERVERS.items():
        with serve() as where:
            print(f"{title}:", flush=True)
            failed |= models.main([*sys.argv[1:], "--numbers-only", "--on", where])
    return failed


@contextmanager
def direct() -> Iterator[str]:
    with python_server() as (_, port):
        yield f"127.0.0.1:{port}"


@contextmanager
def tracked() -> Iterator[str]:
    with tvm_process("rpc_tracker") as port:
        where = f"127.0.0.1:{port}"
        with python_server("--tracker", where, "--key", KEY):
            yield f"tracker:{KEY}@{where}"


@contextmanager
def of_tvm() -> Iterator[str]:
    with tvm_server() as port:
        yield f"127.0.0.1:{port}"


SERVERS = {"adrenoc runtime serve": direct, "TVM's tracker": tracked, "TVM's server": of_tvm}
