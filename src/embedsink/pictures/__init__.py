"""Dashboards as pictures, without a browser: SVG, PNG, PDF and HTML that need nothing else.

files of dashboards/ ─▶ answers of their sections ─▶ one SVG (`sheet`) ─▶ PNG, PDF, HTML
"""

from embedsink.pictures.rendering import FORMATS, SectionAnswer, Telling, render

__all__ = ["FORMATS", "SectionAnswer", "Telling", "render"]
