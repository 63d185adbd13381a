"""TVM's own server and tracker as peers: we speak the real protocol."""

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from adrenoc.base.errors import RemoteError
from adrenoc.bundle.bundle import Bundle
from adrenoc.device.peers import HostPort, Tracker
from adrenoc.device.remote import RemoteAddress, describe, run_remote
from tests.runtime.programs import Case
from tests.runtime.servers import (
    WAIT_S,
    address_of,
    free_port,
    native_server,
    python_server,
    tvm_process,
    tvm_server,
    wait_until,
)

pytest.importorskip("tornado", reason="TVM's tracker and server want it")
pytest.importorskip("psutil", reason="TVM's server wants it")
pytest.importorskip("cloudpickle", reason="TVM's server wants it")


@pytest.fixture(scope="module")
def tracker() -> Iterator[int]:
    with tvm_process("rpc_tracker") as port:
        yield port


def _tracked(port: int, key: str, timeout_s: float = WAIT_S) -> RemoteAddress:
    return RemoteAddress.parse(f"127.0.0.1:{port}", key=key, tracked=True, timeout_s=timeout_s)


def _check(bundle: Bundle, case: Case, address: RemoteAddress) -> None:
    result = run_remote(bundle, address, inputs=case.arrays, repeat=2)
    for name, expected in case.outputs.items():
        np.testing.assert_array_equal(result.outputs[name], expected)


def test_tvms_server(bundle, case, opencl):
    with tvm_server("--key", "phone") as port:
        _check(bundle, case, address_of(port, key="phone"))
        told = describe(address_of(port, key="phone"))
    assert "tvm-" in told.version
    assert told.devices


@pytest.mark.parametrize("kind", ["native", "python", "tvm"])
def test_servers_of_a_tracker(kind, bundle, case, runtime, opencl, tracker):
    options = ("--tracker", f"127.0.0.1:{tracker}", "--key", kind)
    if kind == "tvm":
        server = tvm_server(*options)
    else:
        server = (
            python_server(*options)
            if kind == "python"
            else native_server(runtime, opencl, *options)
        )
    with server:
        for _ in range(2):
            _check(bundle, case, _tracked(tracker, kind))
        known = Tracker(HostPort(host="127.0.0.1", port=tracker), timeout_s=WAIT_S)
        assert kind in {entry.key for entry in known.servers()}
        known.close()


@pytest.mark.parametrize("kind", ["native", "python"])
def test_who_was_given_a_server_may_come_again(kind, runtime, opencl, tracker):
    """What a fleet proves on a device takes many sessions there; it stays free for one client."""
    key = f"again-{kind}"
    options = ("--tracker", f"127.0.0.1:{tracker}", "--key", key)
    known = Tracker(HostPort(host="127.0.0.1", port=tracker), timeout_s=WAIT_S)
    served = (
        native_server(runtime, opencl, *options) if kind == "native" else python_server(*options)
    )
    with served as (server, _):
        offer = known.request(key)
        for _ in range(3):
            assert describe(address_of(offer.address.port, key=offer.key)).devices
        wait_until(lambda: sum("ended" in line for line in server.heard) == 3)
        time.sleep(0.5)  # it looks whether its offer stands
        assert known.request(key).key == offer.key
        with pytest.raises(RemoteError, match="no free server"):
            describe(_tracked(tracker, key, timeout_s=3.0))
    known.close()


def test_two_clients_take_turns(bundle, case, runtime, opencl, tracker):
    failures: list[BaseException] = []

    def client() -> None:
        try:
            _check(bundle, case, _tracked(tracker, "shared"))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    options = ("--tracker", f"127.0.0.1:{tracker}", "--key", "shared")
    with native_server(runtime, opencl, *options):
        clients = [threading.Thread(target=client) for _ in range(2)]
        for one in clients:
            one.start()
        for one in clients:
            one.join(2 * WAIT_S)
    assert not failures


def test_a_kind_that_nobody_offers(bundle, case, tracker):
    with pytest.raises(RemoteError, match='no free server with the key "nobody"'):
        run_remote(bundle, _tracked(tracker, "nobody", timeout_s=3.0), inputs=case.arrays)


def test_no_tracker_and_what_is_none(bundle, case, opencl):
    with pytest.raises(RemoteError, match="no tracker at"):
        run_remote(bundle, _tracked(free_port(), "any"), inputs=case.arrays)
    with tvm_server() as port, pytest.raises(RemoteError, match="tracker"):
        run_remote(bundle, _tracked(port, "any", timeout_s=2), inputs=case.arrays)


def test_a_server_outlives_its_tracker(bundle, case, runtime, opencl):
    port = free_port()
    options = ("--tracker", f"127.0.0.1:{port}", "--key", "late")
    with native_server(runtime, opencl, *options), python_server(*options[:-1], "later"):
        time.sleep(0.5)  # they find no tracker
        with tvm_process("rpc_tracker", port=port):
            _check(bundle, case, _tracked(port, "late"))
            _check(bundle, case, _tracked(port, "later"))
