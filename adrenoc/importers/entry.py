"""How a model file is entered: with which settings, and by which of its signatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adrenoc.bundle.decoder_names import PAST_BRANCH


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Inputs that are `fixed` to values, and the `signature` of a TFLite file that has several."""

    fixed: tuple[tuple[str, str], ...] = ()
    signature: str = ""

    @property
    def leaves_decoder(self) -> bool:
        """Whether it is another way into a file than that of a decoder with a past."""
        branch = dict(self.fixed).get(PAST_BRANCH, "")
        return bool(self.signature) or branch.lower() in ("false", "0")

    def options(self) -> dict[str, Any]:
        """Return what options say of it; None is what they leave."""
        return {"fixed": self.fixed or None, "signature": self.signature or None}


AS_IT_IS = Entry()
"""Nothing is fixed, and the first graph is taken."""
