"""The parameters of an address: each is known, and stands as often as it may."""

from collections.abc import Sequence
from difflib import get_close_matches

from starlette.datastructures import QueryParams

from embedsink.errors import Refused, quote
from embedsink.reasons import Reason

# The others stand once: of two periods nobody can say which was meant.
REPEATABLE = ("deployment",)


def check_parameters(query: QueryParams, known: Sequence[str]) -> None:
    """Raises Refused (`bad_parameter`) for a parameter that is not known, or that stands twice."""
    for name in query:
        if name not in known:
            nearest = get_close_matches(name, known, n=1)
            others = f"There are {', '.join(known)}." if known else "There are none here."
            instead = f'Did you mean "{nearest[0]}"?' if nearest else others
            raise Refused(Reason.BAD_PARAMETER, f"parameter {quote(name)} does not exist. {instead}")
        if name not in REPEATABLE and len(query.getlist(name)) > 1:
            raise Refused(Reason.BAD_PARAMETER, f"{name}: stands more than once in the address. Give it once.")


def limit_of(text: str | None, *, default: int, most: int) -> int:
    """How many rows are asked for.

    Raises:
        Refused: `bad_parameter`.
    """
    limit = int(text) if text and text.isascii() and text.isdigit() and len(text) < 6 else default
    if text is not None and (str(limit) != text or not 1 <= limit <= most):
        raise Refused(Reason.BAD_PARAMETER, f"limit: {quote(text)} is not an integer from 1 to {most:,}.")
    return limit
