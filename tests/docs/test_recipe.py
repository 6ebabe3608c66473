"""The recipe for tests in docs/inspector.md, unchanged: its page, its test, and a runner like Playwright's."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import playwright
import pytest

from tests.browser.sites import EMBED, Site
from tests.docs.blocks import blocks
from tests.docs.conftest import Documented
from tests.support.chromium import PROGRAM
from tests.support.programs import require

pytestmark = [pytest.mark.server, pytest.mark.slow]

DRIVER = Path(playwright.__file__).parent / "driver"
# The part of @playwright/test that the recipe uses. Playwright for Python does not include it.
RUNNER = """
import assert from "node:assert/strict";
import { chromium, request as requests } from "DRIVER/package/index.mjs";

const { CHROMIUM, HOST, EXPECT_TIMEOUT_MS } = process.env;
export const expect = (value) => ({ toMatchObject: (wanted) => assert.partialDeepStrictEqual(value, wanted) });
expect.poll = (ask) => ({
  async toEqual(wanted) {
    for (const end = Date.now() + +EXPECT_TIMEOUT_MS; ; await new Promise((wake) => setTimeout(wake, 100)))
      try {
        return assert.deepEqual(await ask(), wanted);
      } catch (error) {
        if (Date.now() > end) throw error;
      }
  },
});
export const test = async (name, body) => {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  const request = await requests.newContext();
  try {
    const page = await browser.newPage({ baseURL: HOST });
    await body({ page, request });
    console.log("passed:", name);
  } finally {
    await request.dispose();
    await browser.close();
  }
};
"""
# The embed emits the events that the recipe expects.
DASHBOARD = f"""{EMBED}<h1>Revenue</h1><script>
  ready(12, "acme");
  view("/dashboards/sales");
  emit("dashboard-loaded", {{ widgetCount: 8 }});
</script>"""


class Recipe(NamedTuple):
    """A folder with the test, and the site of the page that it drives."""

    folder: Path
    host: Site
    page: str
    environment: dict[str, str]

    def run(self, page: str, *, timeout_ms: int) -> "subprocess.CompletedProcess[str]":
        """Run the test on this page."""
        self.host.add("/reports", f"<!doctype html><body>{page}")
        environment = self.environment | {"EXPECT_TIMEOUT_MS": str(timeout_ms)}
        command = [str(DRIVER / "node"), "recipe.mjs"]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=90)


@pytest.fixture
def recipe(documented: Documented, tmp_path: Path) -> Iterator[Recipe]:
    require("chromium")
    [page] = [block.text for block in blocks("html") if block.page == "docs/inspector.md"]
    [script] = [block.text for block in blocks("js") if block.page == "docs/inspector.md"]
    module = tmp_path / "node_modules" / "@playwright" / "test"
    module.mkdir(parents=True)
    (module / "package.json").write_text('{"name": "@playwright/test", "type": "module", "exports": "./index.js"}')
    (module / "index.js").write_text(RUNNER.replace("DRIVER", str(DRIVER)))
    (tmp_path / "recipe.mjs").write_text(documented.at(script))
    host, tenant = Site(), Site()
    tenant.add("/embed/dashboard/d_81f2", DASHBOARD)
    key = documented.server.key("ingest", origins=[host.url])
    page = documented.at(page).replace("https://tenant.example.com", tenant.url).replace("es_ingest_…", key)
    environment = os.environ | documented.environment() | {"HOST": host.url, "CHROMIUM": PROGRAM or ""}
    yield Recipe(tmp_path, host, page, environment)
    host.close()
    tenant.close()


def test_the_documented_test_passes_on_the_documented_page(recipe: Recipe) -> None:
    result = recipe.run(recipe.page, timeout_ms=20_000)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == "passed: an embedded dashboard sends its events\n"


def test_the_documented_test_fails_on_a_page_that_does_not_name_its_session(recipe: Recipe) -> None:
    result = recipe.run(recipe.page.replace(", session }", " }"), timeout_ms=2_000)
    assert result.returncode != 0
    assert "dashboard-loaded" in result.stderr
