"""`scripts/mutation-test` finds the texts that its bugs replace. A run takes ten minutes, so CI does not include it."""

import runpy

from tests.support.paths import ROOT


def test_each_text_to_replace_occurs_once_in_its_file() -> None:
    mutations = runpy.run_path(str(ROOT / "scripts" / "mutation-test"))["MUTATIONS"]
    assert len(mutations) == 10
    assert [name for name, file, old, _ in mutations if (ROOT / file).read_text().count(old) != 1] == []
