"""Refuses a TFLite file with operators that are not translated, naming them all at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from adrenoc.base.errors import CustomDomainError, UnsupportedOperatorError
from adrenoc.base.text.spelling import list_first
from adrenoc.importers.tflite.converter import GraphConverter
from adrenoc.importers.tflite.extensions import extension_names
from adrenoc.importers.tflite.file import GraphInfo, Operator
from adrenoc.importers.tflite.ops import CUSTOM_OPS
from adrenoc.importers.tflite.untranslated import hint_at_custom


def check_operators(graphs: Iterable[GraphInfo], known: Iterable[str] = ()) -> None:
    """Refuse custom operators that are neither `known` nor translated.

    Raises:
        CustomDomainError: naming them all.
    """
    known = {*known, *CUSTOM_OPS, *extension_names()}
    custom = [(g, o) for g in graphs for o in g.operators if o.custom and o.kind not in known]
    if custom:
        raise CustomDomainError(
            f"custom operators: {_counts([o for _, o in custom])}; "
            f"at {list_first((g.label(o) for g, o in custom), between=', ')}",
            hint=hint_at_custom(o.kind for _, o in custom),
        )


def check_imported(converter: GraphConverter) -> None:
    """Refuse what could not be translated.

    Raises:
        UnsupportedOperatorError: naming it all.
    """
    if converter.failures:
        failed = [operator for operator, _, _ in converter.failures]
        labels: dict[str, list[str]] = {}
        for operator, label, why in converter.failures:
            labels.setdefault(why, []).append(label if operator.outputs else operator.kind)
        where = list_first(
            f"{list_first(dict.fromkeys(same), between=', ')}: {why}"
            for why, same in labels.items()
        )
        raise UnsupportedOperatorError(
            f"operators that cannot be imported: {_counts(failed)}; at {where}",
            hint="convert the model with other operators, or cut it before these",
        )


def _counts(operators: Sequence[Operator]) -> str:
    kinds = Counter(o.kind for o in operators)
    return ", ".join(f"{kind} ({count}x)" for kind, count in sorted(kinds.items()))
