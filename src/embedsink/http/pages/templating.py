"""HTML templates. Their variables are escaped, and a missing variable is an error."""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedsink.http.security_headers import SCRIPTED_PAGE, policy_headers

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent / "templates"
# The headers of a page without scripts or forms.
STATIC_PAGE_HEADERS = policy_headers({"style-src": "'self'", "img-src": "'self'"}, referrer="no-referrer")
_TEXT_IN_BACKTICKS = re.compile(r"`([^`]+)`")


def page_headers(*, frame_origins: str) -> dict[str, str]:
    """Return the headers of a page with scripts and forms.

    Args:
        frame_origins: the origins whose pages may embed this page, separated by spaces, or `none`.
    """
    frame_ancestors = "'none'" if frame_origins == "none" else frame_origins
    directives = SCRIPTED_PAGE | {"form-action": "'self'", "frame-ancestors": frame_ancestors}
    # With `no-referrer`, browsers submit forms with `Origin: null`, and the server refuses them.
    return policy_headers(directives, referrer="same-origin")


def render(template: str, **variables: Any) -> str:
    """Return the HTML of a template.

    Raises:
        jinja2.UndefinedError: a variable of the template is missing.
    """
    return _environment().get_template(template).render(variables)


@cache
def _environment() -> "Environment":
    """Return the Jinja environment with the settings of all templates."""
    # Imported here: the import takes 80 ms and 2.7 MiB, and most servers never show a page.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["markdown_code"] = markdown_code
    return environment


def markdown_code(text: str) -> str:
    """Return a sentence as escaped HTML, with text in backticks as `<code>`."""
    from markupsafe import Markup, escape

    html = _TEXT_IN_BACKTICKS.sub(r"<code>\1</code>", str(escape(text)))
    return Markup(html)  # noqa: S704
