"""A device of a server, at the other end of a session, as a place where a bundle runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from adrenoc.bundle.bundle import LIBRARY, PARAMS, Bundle
from adrenoc.device.answers import WrongAnswerError, check_answer, check_answers, check_output
from adrenoc.device.place import OPENCL, upload

if TYPE_CHECKING:
    from adrenoc.bundle.manifest import ParamSpec, TensorSpec


def remote_function(session: Any, name: str) -> Callable[..., Any] | None:
    """Return a function of the runtime at the other end, whose answers are held against their
    form."""
    try:
        found: Callable[..., Any] = session.get_function(name)
    except AttributeError:  # what TVM raises for a name that the server does not know
        return None
    return check_answers(name, found)


def absent_devices(session: Any) -> str:
    """Return why a server has no more OpenCL devices, as far as its runtime tells."""
    told = remote_function(session, "adrenoc.opencl.absent_devices")
    return "" if told is None else str(told())


class RemotePlace:
    """A device of the server at `where`; what that has by digest is not sent again."""

    def __init__(
        self, session: Any, number: int, facts: dict[str, Any], *, where: str = ""
    ) -> None:
        self._session = session
        self.where = where
        self.number = number
        self.facts = facts
        self.sent_bytes = 0
        self.kept_bytes = 0
        self._libraries = 0

    def function(self, name: str) -> Callable[..., Any] | None:
        """See `Place`; what the function answers is held against its form."""
        return remote_function(self._session, name)

    def device(self) -> Any:
        """See `Place`."""
        return self._session.device(OPENCL, self.number)

    def cpu(self) -> Any:
        """See `Place`."""
        return self._session.cpu()

    def load(self, bundle: Bundle) -> Any:
        """See `Place`."""
        digest = self._keep(bundle, LIBRARY)
        load = self.function("adrenoc.store.load_module")
        if digest and load is not None:
            return load(digest)
        # A library that is loaded must not be written over.
        name = f"{self._libraries}-{LIBRARY}"
        self._libraries += 1
        self._session.upload(str(bundle.library), name)
        self.sent_bytes += bundle.library.stat().st_size
        module = self._session.load_module(name)
        return check_answer("tvm.rpc.server.load_module", module)

    def constants(self, bundle: Bundle, specs: Sequence[ParamSpec] | None = None) -> list[Any]:
        """See `Place`."""
        specs = bundle.manifest.params if specs is None else specs
        digest = self._keep(bundle, PARAMS) if specs else ""
        stored = self.function("adrenoc.store.tensor")
        moves = bundle.moves()
        # What comes of others in another order is made here: the server reads what is in the file.
        sent = [s for s in specs if stored is None or not digest or s.name in moves]
        arrays, names = bundle.walk_params(sent), {spec.name for spec in sent}
        device, kind = self.device(), _device_type()
        brought = []
        for spec in specs:
            if stored is None or spec.name in names:
                array = next(arrays)
                self.sent_bytes += array.nbytes
                brought.append(upload(spec, array, device))
                continue
            brought.append(stored(digest, spec.name, kind, self.number, spec.scope))
        return brought

    def embedded_folder(self, bundle: Bundle) -> str:
        """See `Place`; the server has a cache of its own."""
        return ""

    def fields(self, result: Any, specs: Sequence[TensorSpec]) -> list[Any]:
        """See `Place`."""
        if hasattr(result, "numpy"):
            return [check_output(spec, result) for spec in specs]
        # A tuple stays there, and its fields are asked for.
        field = remote_function(self._session, "vm.builtin.tuple_getitem")
        if field is None:
            raise WrongAnswerError("it knows nothing of tuples")
        return [check_output(spec, field(result, index)) for index, spec in enumerate(specs)]

    def look_up(self, module: Any, name: str) -> Callable[..., Any]:
        """See `Place`."""
        return check_answers(name, module[name])

    def _keep(self, bundle: Bundle, path: str) -> str:
        """Have a file of the bundle in the server's store; its digest, or nothing without one."""
        has = self.function("adrenoc.store.has")
        keep = self.function("adrenoc.store.keep")
        if has is None or keep is None:
            return ""
        entry = next(entry for entry in bundle.manifest.files if entry.path == path)
        if has(entry.sha256):
            self.kept_bytes += entry.bytes
            return entry.sha256
        self._session.upload(str(bundle.file(path)), path)
        keep(path, entry.sha256)
        self.sent_bytes += entry.bytes
        return entry.sha256


def _device_type() -> int:
    import tvm

    return int(tvm.runtime.device(OPENCL, 0).dlpack_device_type())
