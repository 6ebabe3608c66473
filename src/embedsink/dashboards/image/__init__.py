"""Dashboards as images, without a browser: SVG, PNG, PDF and self-contained HTML."""
