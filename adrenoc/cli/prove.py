"""`adrenoc prove`: a bundle gets numbers by which an app tells whether a driver is right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from adrenoc.cli.guarded import HeavyCommand, InputPath
from adrenoc.cli.records import argument, give_options


@dataclass(frozen=True, kw_only=True)
class _Proven:
    bundle: Path = argument(type=InputPath(replaced=True))
    model: Path = argument(type=InputPath())


@click.command("prove", cls=HeavyCommand)
@give_options(_Proven)
def prove_command(given: _Proven) -> int:
    """Put inputs and what MODEL makes of them into BUNDLE, for `adrenoc_verify` in an app.

    On a phone that nobody has tried, an app then asks once whether the driver computes the model
    rightly, and falls back where it does not.
    """
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.cli import console
    from adrenoc.lab.prove.proof import put_proof

    opened = open_bundle(given.bundle)
    proof = put_proof(opened, given.model, seed=0)
    size = len(proof.to_json().encode("utf-8"))

    def show() -> None:
        console.print_title(opened.manifest.name, f"with numbers of {proof.reference}")
        fields = [
            ("compared", f"{proof.values} numbers{_tell_shapes(len(proof.trials))}"),
            ("in the bundle", console.size(size)),
        ]
        fields += [("left out", what) for what in proof.left_out]
        fields.append(("next", "adrenoc_verify of adrenoc.h, in an app"))
        console.print_fields(fields)

    told = {"bundle": str(given.bundle), "bytes": size, "values": proof.values}
    more = {"reference": proof.reference, "left_out": proof.left_out}
    return console.tell({**told, **more}, show)


def _tell_shapes(count: int) -> str:
    return f" in {count} shapes" if count > 1 else ""
