"""What to compile for one GPU of several; loads no TVM."""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.bundle.editions import DEVICES_FOLDER, Edition
from adrenoc.ir.options import CompileOptions
from adrenoc.target.device_set import SetMember


@dataclass(frozen=True, kw_only=True)
class EditionPlan:
    """One GPU to compile for beside the common target, and how."""

    member: SetMember
    options: CompileOptions

    def digest(self) -> tuple[str, ...]:
        """All of it that can change a bundle."""
        member = self.member
        return member.target.digest(), self.options.digest(), member.gpu, member.driver

    @property
    def entry(self) -> Edition:
        """What the bundle says of it."""
        member = self.member
        return Edition(
            folder=f"{DEVICES_FOLDER}/{member.folder}",
            target=member.target.name,
            gpu=member.gpu,
            driver=member.driver,
        )
