"""A link that is slow or breaks: a proxy in a process of its own.

    python -m tests.runtime.link PORT BYTES_PER_S END THEN

TVM's calls hold the lock of this interpreter while they wait: a proxy in a thread beside them would
never pass anything on.
"""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PIECE_BYTES = 1 << 12


@contextmanager
def link_to(port: int, *, bytes_per_s: float = 0, end: int = 0, then: str = "") -> Iterator[int]:
    """A proxy in front of a server, and its port.

    After `end` bytes from the client it stalls or cuts the connection, whichever `then` says.
    """
    command = [sys.executable, "-m", "tests.runtime.link"]
    command += [str(port), str(bytes_per_s), str(end), then]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def _serve(server: int, bytes_per_s: float, end: int, then: str) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    while True:
        near, _ = listening.accept()
        far = socket.create_connection(("127.0.0.1", server))
        for source, target, limit in ((near, far, end), (far, near, 0)):
            arguments = (source, target, bytes_per_s, limit, then)
            threading.Thread(target=_pump, args=arguments, daemon=True).start()


def _pump(
    source: socket.socket, target: socket.socket, bytes_per_s: float, end: int, then: str
) -> None:
    passed = 0
    with suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            passed += len(piece)
            if 0 < end <= passed:
                if then == "stall":
                    return
                break
            if bytes_per_s:
                time.sleep(len(piece) / bytes_per_s)
            target.sendall(piece)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
