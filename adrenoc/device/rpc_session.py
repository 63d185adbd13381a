"""One RPC session in a process of its own: `python -m adrenoc.device.rpc_session FD FOLDER ...`.

The handshake is done; FD is the connected socket, FOLDER takes what the peer uploads, STORE keeps
it for later sessions (empty for nowhere), BYTES is the length of the longest message, SERVER the
process of the server.  With `--wait CHANNEL SERVER` everything is loaded first, and the rest comes
through that socket (`adrenoc.device.standby`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from contextlib import suppress

from adrenoc.base.errors import AdrenocError
from adrenoc.base.text.printable import printable
from adrenoc.device.rpc_refusal import refuse
from adrenoc.device.standby import wait_for_connection

_PR_SET_PDEATHSIG = 1


def load() -> str:
    """Load TVM and the OpenCL runtime; why that failed, or nothing."""
    try:
        import tvm  # noqa: F401  (the runtime registers itself there)

        from adrenoc import native

        native.use_software_device()
        native.load()
    except (AdrenocError, ImportError, OSError) as error:
        print(f"adrenoc runtime serve: {error}", file=sys.stderr)
        return str(error)
    return ""


def wait(channel: int) -> int:
    """Load, then wait for a connection and serve it."""
    failure = load()
    if not failure:
        import tvm_ffi

        with suppress(RuntimeError):  # the peer will hear of it
            tvm_ffi.get_global_func("adrenoc.opencl.devices")()  # drivers take their time
    found = wait_for_connection(channel)
    return 0 if found is None else serve(*found, failure=failure)


def main(descriptor: int, folder: str, store: str, max_message_bytes: int) -> int:
    """Load, then serve until the peer leaves; returns the exit code of the process."""
    return serve(descriptor, folder, store, max_message_bytes, failure=load())


def serve(descriptor: int, folder: str, store: str, max_message_bytes: int, *, failure: str) -> int:
    """Serve until the peer leaves, or tell it of a `failure` to load; returns the exit code."""
    if failure:
        with socket.socket(fileno=descriptor) as connection:
            refuse(connection, failure)
        return 1
    import tvm_ffi

    try:
        tvm_ffi.get_global_func("adrenoc.rpc.serve")(descriptor, folder, store, max_message_bytes)
    except (RuntimeError, ValueError) as error:  # the peer vanished in the middle of a message
        print(f"adrenoc runtime serve: {printable(str(error).splitlines()[0])}", file=sys.stderr)
        return 1
    return 0


def _end_with(server: int) -> None:
    """Have the system end this process with the server's, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it ended before the line above
        sys.exit(1)


if __name__ == "__main__":
    if sys.argv[1] == "--wait":
        _end_with(int(sys.argv[3]))
        sys.exit(wait(int(sys.argv[2])))
    _end_with(int(sys.argv[5]))
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
