"""Debian's Chromium, driven by Playwright."""

import shutil

PROGRAM = shutil.which("chromium")
# Sandboxes need rights that containers don't grant, and the pages are our own. An emulated GPU takes more CPU time than
# drawing without one.
ARGUMENTS = ["--no-sandbox", "--disable-gpu"]
