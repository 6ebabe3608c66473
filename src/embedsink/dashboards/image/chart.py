"""One chart as SVG: Vega-Lite, by vl-convert."""

import json
import re
from typing import Any

from embedsink.dashboards.model import VEGA_LITE
from embedsink.errors import Misconfigured

# Vega counts characters by 16 bits, and cuts a long label between the halves of one that needs more.
_WIDE = re.compile("[\U00010000-\U0010ffff]")
_PLACEHOLDER = "\u25a1"


def picture_of(spec: dict[str, Any], *, tile: str) -> str:
    """The SVG of a whole spec.

    Args:
        spec: with its rows.
        tile: the id of the chart in its file.

    Raises:
        Misconfigured: Vega-Lite can't draw it.
    """
    import vl_convert  # It takes 60 ms and 30 MiB.

    written = json.dumps(spec, ensure_ascii=False)
    for text in dict.fromkeys((written, _WIDE.sub(_PLACEHOLDER, written))):
        try:
            svg: str = vl_convert.vegalite_to_svg(text, vl_version=VEGA_LITE, allowed_base_urls=[])
        except ValueError as error:
            why = str(error).strip().splitlines()[0]
        else:
            return svg
    raise Misconfigured(f"chart {tile}: Vega-Lite can't draw its spec ({why}). Mend it in the dashboard's file.")
