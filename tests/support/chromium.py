"""Debian's Chromium, driven by Playwright."""

import shutil

WITH_BACK_FORWARD_CACHE = shutil.which("chromium")
# The headless shell is the same engine without a user interface and a back/forward cache. It takes half the CPU time.
PROGRAM = shutil.which("chromium-headless-shell") or WITH_BACK_FORWARD_CACHE
# Sandboxes need rights that containers don't grant, and the pages are our own.
ARGUMENTS = ["--no-sandbox"]
