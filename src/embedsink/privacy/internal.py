"""Internal people, such as employees and test accounts: the file `internal.toml` in the data folder."""

import tomllib
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from embedsink.auth.parsing import DEPLOYMENT_MAX
from embedsink.errors import Misconfigured, preview

_ANY_TEXT = "*"
_PATTERNS = "a list of texts that are not empty, in which * means any text"
_DEPLOYMENTS = f"a list of integers from {-DEPLOYMENT_MAX:,} to {DEPLOYMENT_MAX:,}"
# The server accepts no text with NUL.
_Pattern = Annotated[str, Field(pattern="^[^\0]+$")]
_Deployment = Annotated[int, Field(ge=-DEPLOYMENT_MAX, le=DEPLOYMENT_MAX)]


class InternalPeople(BaseModel):
    """The content of `internal.toml`. Upper and lower case don't matter.

    Args:
        viewers: patterns of viewers.
        tenants: patterns of tenants.
        deployments: deployments.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    viewers: list[_Pattern] = Field([], description=_PATTERNS)
    tenants: list[_Pattern] = Field([], description=_PATTERNS)
    deployments: list[_Deployment] = Field([], description=_DEPLOYMENTS)

    @property
    def is_empty(self) -> bool:
        """Whether the file has no pattern and no deployment."""
        return not (self.viewers or self.tenants or self.deployments)

    def includes(self, context: Mapping[str, Any]) -> bool:
        """Return whether a context names an internal viewer, tenant or deployment."""
        return (
            context.get("deployment") in self.deployments
            or self._viewers.match(context.get("viewer"))
            or self._tenants.match(context.get("tenant"))
        )

    @cached_property
    def _viewers(self) -> "_Patterns":
        return _Patterns(self.viewers)

    @cached_property
    def _tenants(self) -> "_Patterns":
        return _Patterns(self.tenants)


def read_internal_people(path: Path) -> InternalPeople:
    """Return the content of an `internal.toml`. A missing file has no patterns.

    Raises:
        Misconfigured: the file can't be read, is not TOML, or has an unknown or invalid field.
    """
    try:
        return InternalPeople.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        if path.is_symlink():
            raise Misconfigured(f"{path}: is a link to a missing file. Correct the link, or delete it.") from None
        return InternalPeople()
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}. Make it readable for this user.") from None
    except ValidationError as error:
        raise Misconfigured(f"{path.name}: {_error_message(error)}") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, UnicodeDecodeError, deep nesting
        raise Misconfigured(f"{path.name}: is not TOML ({error}). Correct the file.") from None


def _error_message(error: ValidationError) -> str:
    """Return a sentence about the first invalid field."""
    detail = error.errors(include_url=False)[0]
    name = str(detail["loc"][0])
    fields = InternalPeople.model_fields
    if name not in fields:
        return f"{preview(name)} is not a field. The fields are {', '.join(fields)}."
    return f"{name}: {preview(detail['input'])} is not {fields[name].description}. Correct it."


class _Patterns:
    """Patterns in which `*` means any text. Matching takes linear time: senders choose the texts."""

    def __init__(self, patterns: Iterable[str]) -> None:
        folded = [pattern.casefold() for pattern in patterns]
        self._texts = frozenset(pattern for pattern in folded if _ANY_TEXT not in pattern)
        self._pieces = [pattern.split(_ANY_TEXT) for pattern in folded if _ANY_TEXT in pattern]

    def match(self, text: str | None) -> bool:
        """Return whether a text matches a pattern completely. Upper and lower case don't matter."""
        if text is None:
            return False
        folded = text.casefold()
        return folded in self._texts or any(_has_pieces(folded, pieces) for pieces in self._pieces)


def _has_pieces(text: str, pieces: list[str]) -> bool:
    """Return whether a text begins with the first piece, ends with the last one, and has the others in between."""
    first, *middle, last = pieces
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    position, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True
