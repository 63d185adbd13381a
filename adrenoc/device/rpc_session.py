"""One RPC session in a process of its own: `python -m adrenoc.device.rpc_session FD FOLDER`.

The handshake is done; FD is the connected socket, FOLDER takes what the peer uploads.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import adrenoc


def main(descriptor: int, folder: Path) -> int:
    """Serve until the peer leaves; returns the exit code of the process."""
    import tvm
    import tvm_ffi

    from adrenoc import native

    native.use_software_device()
    native.load()

    def work_path(name: str) -> str:
        # A peer names files, not places.
        if name in {"", ".", ".."} or "/" in name:
            raise ValueError(f"a file name of a peer is one name without folders, got {name!r}")
        return str(folder / name)

    def define(name: str, function: object) -> None:
        tvm_ffi.register_global_func(name, function, override=True)

    define("tvm.rpc.server.workpath", work_path)
    define("tvm.rpc.server.load_module", lambda name: tvm.runtime.load_module(work_path(name)))
    define("adrenoc.runtime.version", lambda: f"{adrenoc.__version__} python")
    define("adrenoc.runtime.machine", platform.machine)
    try:
        tvm_ffi.get_global_func("rpc.ServerLoop")(descriptor)
    except RuntimeError as error:  # the peer vanished in the middle of a message
        print(f"adrenoc serve: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
