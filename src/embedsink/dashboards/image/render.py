"""A dashboard and what its sections show, as one file."""

from collections.abc import Mapping

from embedsink.dashboards.image.model import Caption, SectionAnswer
from embedsink.dashboards.image.sheet import draw
from embedsink.dashboards.image.svg import escaped
from embedsink.dashboards.model import Dashboard
from embedsink.dashboards.theme import DARK, LIGHT

FORMATS = ("pdf", "png", "svg", "html")
PNG_SCALE = 2.0


def render(
    dashboard: Dashboard, answers: Mapping[str, SectionAnswer], caption: Caption, *, format: str, is_dark: bool = False
) -> bytes:
    """A dashboard as a file.

    Args:
        dashboard: with the sections and their charts.
        answers: what they show, by the section's id.
        caption: what is told about them.
        format: one of `FORMATS`. A PDF is one page, as long as it has to be.
        is_dark: light on dark.
    """
    svg = draw(dashboard, answers, caption, DARK if is_dark else LIGHT)
    if format == "svg":
        return svg.encode()
    if format == "html":
        return _page(dashboard, svg, is_dark=is_dark).encode()
    import vl_convert  # It takes 60 ms and 30 MiB.

    return vl_convert.svg_to_pdf(svg) if format == "pdf" else vl_convert.svg_to_png(svg, scale=PNG_SCALE)


def _page(dashboard: Dashboard, svg: str, *, is_dark: bool) -> str:
    ground = (DARK if is_dark else LIGHT).desk
    # Mail programs take what a page loads for spying: it loads nothing.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(dashboard.title)} · embedsink</title>\n"
        f"<style>body {{ margin: 0; background: {ground}; }} "
        "svg.sheet { display: block; margin: 0 auto; max-width: 100%; height: auto; }</style>\n"
        f"</head>\n<body>\n{svg}\n</body>\n</html>\n"
    )
