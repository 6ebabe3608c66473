"""Parsers of the values of parameters. None is the value of a missing parameter."""

from collections.abc import Collection

from embedsink.errors import Refused, preview
from embedsink.protocol.strict_json import has_bad_text
from embedsink.reasons import Reason


def parse_text(name: str, text: str | None) -> str | None:
    """Return the text unchanged. Raise Refused if it contains a NUL or a lone surrogate (reason `bad_parameter`)."""
    if has_bad_text(text):
        raise Refused(Reason.BAD_PARAMETER, f"{name}: {preview(text)} contains a NUL or a lone surrogate. Remove it.")
    return text


def parse_choice(name: str, text: str | None, choices: Collection[str]) -> str | None:
    """Return the text unchanged. Raise Refused if it is neither None nor a choice (reason `bad_parameter`)."""
    if text is not None and text not in choices:
        raise Refused(Reason.BAD_PARAMETER, f"{name}: {preview(text)} is not one of {', '.join(choices)}.")
    return text


def parse_switch(name: str, text: str | None, *, default: bool) -> bool:
    """Return whether a switch is on; `default` for None. Raise Refused for other texts (reason `bad_parameter`)."""
    choice = parse_choice(name, text, ("on", "off"))
    return default if choice is None else choice == "on"
