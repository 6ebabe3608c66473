"""Templates: everything that is put into them is escaped, and whatever they lack is an error."""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedsink.http.security_headers import SCRIPTED_PAGE, policy_headers

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent / "templates"
# Of a page without scripts and forms.
HEADERS = policy_headers({"style-src": "'self'"}, referrer="no-referrer")
_CODE = re.compile(r"`([^`]+)`")


def page_headers(*, frame_origins: str) -> dict[str, str]:
    """The headers of a page with scripts and forms of its own; pages of these origins may frame it."""
    framed_by = "'none'" if frame_origins == "none" else frame_origins
    allowed = SCRIPTED_PAGE | {"form-action": "'self'", "frame-ancestors": framed_by}
    # With none at all, browsers send forms with `Origin: null`, and nobody knows where they come from.
    return policy_headers(allowed, referrer="same-origin")


def render(template: str, **words: Any) -> str:
    """A page from one of the templates.

    Raises:
        jinja2.UndefinedError: the template wants a word that is not there.
    """
    return _environment().get_template(template).render(words)


@cache
def _environment() -> "Environment":
    # Imported here, because it takes 80 ms and 2.7 MiB, and most servers never show a page.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["marked"] = marked
    return environment


def marked(text: str) -> str:
    """A sentence in HTML, its `names` as code. Everything is escaped first."""
    from markupsafe import Markup, escape

    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704
