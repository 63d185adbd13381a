"""The signatures of a TFLite file: several ways to call it, of which a compilation takes one."""

from __future__ import annotations

from dataclasses import replace

from adrenoc.base.decision import ASSUMED, Decision
from adrenoc.base.errors import OptionError
from adrenoc.base.text.spelling import did_you_mean, list_first
from adrenoc.importers.tflite.file import GraphInfo, SignatureInfo, TFLiteFile


def take_signature(file: TFLiteFile, key: str) -> TFLiteFile:
    """The file with the graph of a signature as its main one; as it is where `key` is empty.

    Raises:
        OptionError: the file has no such signature.
    """
    if not key:
        return file
    known = {one.key: one for one in file.signatures}
    if key not in known:
        listed = list_first((f"'{one}'" for one in known), between=", ")
        has = f"its signatures are {listed}" if known else "it lists none"
        raise OptionError(
            f"signature={key}: the file has no such signature{did_you_mean(key, list(known))}; "
            f"{has}",
            hint=f"--set signature={next(iter(known))}" if known else "leave it out",
        )
    return replace(file, entry=known[key].graph)


def replace_main(file: TFLiteFile, graph: GraphInfo) -> TFLiteFile:
    """The file with another main graph."""
    graphs = (*file.graphs[: file.entry], graph, *file.graphs[file.entry + 1 :])
    return replace(file, graphs=graphs)


def find_signature(file: TFLiteFile) -> SignatureInfo | None:
    """The signature that the main graph is computed by, where the file lists it."""
    return next((one for one in file.signatures if one.graph == file.entry), None)


def tell_signature(file: TFLiteFile, key: str) -> list[Decision]:
    """What was taken of a file with several signatures, and how to have another."""
    others = [one.key for one in file.signatures if one.graph != file.entry]
    if not others:
        return []
    taken = find_signature(file)
    name = file.main.name if taken is None else taken.key
    listed = list_first((f"'{one}'" for one in others), between=", ")
    return [
        Decision(
            subject=name,
            taken=f"took the signature '{key}'"
            if key
            else f"{ASSUMED} the first graph's signature",
            reason=f"the file has others: {listed}; --set signature={others[0]} takes it, "
            "adrenoc compile --signature all every one",
        )
    ]
