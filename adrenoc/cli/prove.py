"""`adrenoc prove`: a bundle gets numbers by which an app tells whether a driver is right."""

from __future__ import annotations

from pathlib import Path

import click

from adrenoc.cli.guarded import HeavyCommand, wants_json
from adrenoc.cli.options import path_argument, seed_option


@click.command("prove", cls=HeavyCommand)
@path_argument("bundle", replaced=True)
@path_argument("model")
@seed_option("Seed of the inputs.")
def prove_command(bundle: Path, model: Path, seed: int) -> None:
    """Put inputs and what MODEL makes of them into BUNDLE, for `adrenoc_verify` in an app.

    On a phone that nobody has tried, an app then asks once whether the driver computes the model
    rightly, and falls back where it does not.
    """
    as_json = wants_json()
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.cli import console
    from adrenoc.lab.prove.proof import put_proof

    opened = open_bundle(bundle)
    proof = put_proof(opened, model, seed=seed)
    size = len(proof.to_json().encode("utf-8"))
    if as_json:
        told = {"bundle": str(bundle), "bytes": size, "values": proof.values}
        console.print_json({**told, "reference": proof.reference, "left_out": proof.left_out})
        return
    console.print_title(opened.manifest.name, f"with numbers of {proof.reference}")
    fields = [
        ("compared", f"{proof.values} numbers{_tell_shapes(len(proof.trials))}"),
        ("in the bundle", console.size(size)),
    ]
    fields += [("left out", what) for what in proof.left_out]
    fields.append(("next", "adrenoc_verify of adrenoc.h, in an app"))
    console.print_fields(fields)


def _tell_shapes(count: int) -> str:
    return f" in {count} shapes" if count > 1 else ""
