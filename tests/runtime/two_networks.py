"""Two machines on one network, made of namespaces: the servers' and that of one who has no key.

`python -m tests.runtime.two_networks SERVER` runs in namespaces of its own (see the test), sets up
each way that the README documents, attacks it from the other machine, and prints what came of that.
"""

import json
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress

from adrenoc.base.errors import RemoteError
from adrenoc.device.peers import MAGIC, HostPort, Tracker
from tests.runtime.servers import server_process, tvm_process

SERVER, ATTACKER = "10.99.0.1", "10.99.0.2"
KIND, SECRET = "a750", "a secret of two words"
_TRY_S = 3.0
_NETWORK = f"""
mount -t tmpfs none /run
ip link set lo up
ip netns add attacker
ip link add served type veth peer name other netns attacker
ip addr add {SERVER}/24 dev served
ip link set served up
ip -n attacker addr add {ATTACKER}/24 dev other
ip -n attacker link set lo up
ip -n attacker link set other up
"""


def main() -> None:
    """Set up, attack, tell."""
    for line in _NETWORK.split("\n")[1:-1]:
        subprocess.run(line.split(), check=True)
    (program,) = sys.argv[1:]
    told = {"a key": _key(program)}
    for host in ("127.0.0.1", "0.0.0.0"):  # as documented, and a tracker that all can ask
        told[f"a tracker at {host}"] = _tracker(program, host)
    print(json.dumps(told))


def _key(program: str) -> dict[str, object]:
    words = (program, "--host", "0.0.0.0", "--port", "0", "--key", SECRET)
    with server_process(*words) as (_, port):
        return {**_attack(port), "owner": _greet(SERVER, port, SECRET)}


def _tracker(program: str, host: str) -> dict[str, object]:
    with tvm_process("rpc_tracker", host=host) as tracker:
        words = (program, "--port", "0", "--tracker", f"127.0.0.1:{tracker}", "--key", KIND)
        with server_process(*words) as (_, port):
            told = _attack(port, tracker)
            known = Tracker(HostPort(host="127.0.0.1", port=tracker), timeout_s=20)
            offer = known.request(KIND)
            return {**told, "owner": _greet(offer.address.host, port, offer.key)}


def _attack(port: int, tracker: int = 0) -> dict[str, object]:
    """What one on the other machine gets, by this very module."""
    command = ["ip", "netns", "exec", "attacker", sys.executable, "-m", __spec__.name]
    done = subprocess.run(
        [*command, "attack", str(port), str(tracker)], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def attack(port: int, tracker: int) -> None:
    """Ask the tracker, then try keys as fast as the server answers."""
    keys, asked = ["", KIND, SECRET.split(maxsplit=1)[0]], "no tracker answers"
    if tracker:
        with suppress(RemoteError, TimeoutError):
            offer = Tracker(HostPort(host=SERVER, port=tracker), timeout_s=5).request(KIND)
            keys, asked = [offer.key, *keys], "it gives the key"
    tries, opened, end = 0, 0, time.monotonic() + _TRY_S
    while time.monotonic() < end:
        opened += _greet(SERVER, port, keys[tries % len(keys)]) == "taken"
        tries += 1
    print(json.dumps({"tracker": asked, "opened": opened, "tries": tries}))


def _greet(host: str, port: int, key: str) -> str:
    said = f"client:{key}".encode()
    try:
        with socket.create_connection((host, port), 10) as peer:
            peer.sendall(struct.pack("<ii", MAGIC, len(said)) + said)
            return "taken" if peer.recv(100)[:4] == struct.pack("<i", MAGIC) else "refused"
    except OSError:
        time.sleep(0.1)
        return "unreachable"


if __name__ == "__main__":
    if sys.argv[1] == "attack":
        attack(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
