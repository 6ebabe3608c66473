"""Debian's Chromium, driven by Playwright."""

import shutil

# The headless shell is the same browser without a user interface. It takes half the CPU time.
PROGRAM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
# Sandboxes need rights that containers don't grant, and the pages are our own.
ARGUMENTS = ["--no-sandbox"]
