"""HTML templates: variables are escaped, and missing variables are errors."""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedsink.http.security_headers import SCRIPTED_PAGE, policy_headers

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent / "templates"
# The headers of a page without scripts and forms.
HEADERS = policy_headers({"style-src": "'self'", "img-src": "'self'"}, referrer="no-referrer")
_CODE = re.compile(r"`([^`]+)`")


def page_headers(*, frame_origins: str) -> dict[str, str]:
    """Return the headers of a page with scripts and forms, which pages of `frame_origins` may embed."""
    frame_ancestors = "'none'" if frame_origins == "none" else frame_origins
    allowed = SCRIPTED_PAGE | {"form-action": "'self'", "frame-ancestors": frame_ancestors}
    # With `no-referrer`, browsers submit forms with `Origin: null`, which hides their origin.
    return policy_headers(allowed, referrer="same-origin")


def render(template: str, **variables: Any) -> str:
    """Return the HTML of a template.

    Raises:
        jinja2.UndefinedError: a variable of the template is missing.
    """
    return _environment().get_template(template).render(variables)


@cache
def _environment() -> "Environment":
    # Imported here: the import takes 80 ms and 2.7 MiB, and most servers never show a page.
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
    """Return a sentence as escaped HTML, with text in backticks as `<code>`."""
    from markupsafe import Markup, escape

    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704
