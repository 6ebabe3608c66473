"""Internal people, such as employees and test accounts: the file `internal.toml` in the data folder."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from embedsink.errors import Misconfigured, preview

_ANY_TEXT = "*"
_PATTERNS = "a list of texts, in which * means any text"
_DEPLOYMENTS = "a list of numbers"


class InternalPeople(BaseModel):
    """The content of `internal.toml`. Upper and lower case don't matter.

    Args:
        viewers: patterns of viewers.
        tenants: patterns of tenants.
        deployments: deployments.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    viewers: list[str] = Field([], description=_PATTERNS)
    tenants: list[str] = Field([], description=_PATTERNS)
    deployments: list[int] = Field([], description=_DEPLOYMENTS)

    @property
    def is_empty(self) -> bool:
        """Whether the file has no pattern and no deployment."""
        return not (self.viewers or self.tenants or self.deployments)

    def includes(self, context: Mapping[str, Any]) -> bool:
        """Return whether a context has a viewer, a tenant or a deployment of these."""
        return (
            context.get("deployment") in self.deployments
            or _matches(self._viewers, context.get("viewer"))
            or _matches(self._tenants, context.get("tenant"))
        )

    @cached_property
    def _viewers(self) -> re.Pattern[str] | None:
        return _compile(self.viewers)

    @cached_property
    def _tenants(self) -> re.Pattern[str] | None:
        return _compile(self.tenants)


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


def _compile(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """Return one regular expression for all patterns; None without patterns."""
    expressions = [".*".join(map(re.escape, pattern.split(_ANY_TEXT))) for pattern in patterns]
    return re.compile("|".join(f"(?:{one})" for one in expressions), re.IGNORECASE | re.DOTALL) if expressions else None


@lru_cache(maxsize=4_096)
def _matches(pattern: re.Pattern[str] | None, text: str | None) -> bool:
    """Return whether a text matches a pattern completely."""
    return pattern is not None and text is not None and pattern.fullmatch(text) is not None
