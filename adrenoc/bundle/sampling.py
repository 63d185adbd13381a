"""How tokens are picked: what a model's makers, an option or a request may say of it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a token is picked of logits; a `temperature` of 0 takes the likeliest, others draw.

    `top_k` (0: all) keeps the likeliest tokens, `top_p` (1: all) of these the fewest whose
    probability reaches it, `min_p` (0: all) those that are at least so likely, the likeliest being
    1.  The same `seed` after the same tokens draws the same ones.

    Before that logits are changed, in this order: `bias` holds tokens and what is added to theirs;
    of a token that the context has, a positive one is divided and a negative one multiplied by
    `repetition_penalty`; of a token that the answer has, `frequency_penalty` is taken away as often
    as it does and `presence_penalty` once.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0

    def describe(self) -> str:
        """Write what is not as usual: "tokens drawn at 0.6 (top_k 20)"."""
        told = [
            f"{name} {value:g}"
            for name in RANGES
            if name != "temperature" and (value := getattr(self, name)) != getattr(_USUAL, name)
        ]
        drawn = f"tokens drawn at {self.temperature:g}"
        return (drawn if self.temperature else "the likeliest tokens") + (
            f" ({', '.join(told)})" if told else ""
        )


RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 100),
    "top_k": (0, 1 << 30),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repetition_penalty": (1e-2, 100),
    "presence_penalty": (-100, 100),
    "frequency_penalty": (-100, 100),
}
"""What somebody may say of a field: the least and the most."""
_USUAL = Sampling()
