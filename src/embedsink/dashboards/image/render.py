"""A dashboard with its data as one file: SVG, PNG, PDF or HTML."""

from embedsink.dashboards.image.sheet import Caption, DataBySection, draw
from embedsink.dashboards.image.svg import escaped
from embedsink.dashboards.model import Dashboard
from embedsink.dashboards.theme import DARK, LIGHT

FORMATS = ("pdf", "png", "svg", "html")
PNG_SCALE = 2.0


def render(dashboard: Dashboard, data: DataBySection, caption: Caption, *, format: str, is_dark: bool = False) -> bytes:
    """Return a dashboard as the content of a file.

    Args:
        dashboard: the dashboard.
        data: the data by section id and tile id.
        caption: the filters and times above the tiles.
        format: one of `FORMATS`. A PDF has one page of the required length.
        is_dark: whether to use the dark theme.
    """
    palette = DARK if is_dark else LIGHT
    svg = draw(dashboard, data, caption, palette)
    if format == "svg":
        return svg.encode()
    if format == "html":
        return _html_page(dashboard.title, svg, background=palette.page).encode()
    import vl_convert  # Imported here: the import takes 60 ms and 30 MiB.

    if format == "pdf":
        return vl_convert.svg_to_pdf(svg)
    return vl_convert.svg_to_png(svg, scale=PNG_SCALE)


def _html_page(title: str, svg: str, *, background: str) -> str:
    """Return a page that contains the SVG."""
    # The page loads nothing, because mail programs block remote content as tracking.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)} · embedsink</title>\n"
        f"<style>body {{ margin: 0; background: {background}; }} "
        "svg.sheet { display: block; margin: 0 auto; max-width: 100%; height: auto; }</style>\n"
        f"</head>\n<body>\n{svg}\n</body>\n</html>\n"
    )
