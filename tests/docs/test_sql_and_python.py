"""The SQL and Python of the documentation run on a data folder, and the scripts of the decisions compile."""

import re
from pathlib import Path

import duckdb
import pytest

import embedsink
from tests.docs.blocks import Block, blocks, inline
from tests.docs.conftest import Documented

pytestmark = pytest.mark.server
DECISIONS = "docs/decisions/"
# Begins a condition, which can't run alone.
FRAGMENT = "where "


def label(block: Block) -> str:
    return f"{block.page}: {block.text.splitlines()[0][:40]}"


@pytest.fixture
def docs_folder(documented: Documented, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Documented:
    """Change to the working folder of a reader of the documentation. It contains `data`."""
    documented.copy_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in documented.environment().items():
        monkeypatch.setenv(name, value)
    return documented


def test_every_sql_statement_runs_on_the_snapshot(docs_folder: Documented) -> None:
    texts = [block.text for block in blocks("sql")]
    texts += [code for beginning in ("select ", "set variable ") for _, code in inline(beginning) if " " in code[13:]]
    assert len(texts) >= 6
    for text in texts:
        with duckdb.connect("data/analytics.duckdb", read_only=True) as connection:
            connection.execute(f"from event {text}" if text.startswith(FRAGMENT) else text).fetchall()


@pytest.mark.parametrize("block", [one for one in blocks("python") if not one.page.startswith(DECISIONS)], ids=label)
def test_every_python_block_runs(block: Block, docs_folder: Documented) -> None:
    exec(docs_folder.at(block.text), {})


def test_every_python_expression_within_a_line_runs(docs_folder: Documented) -> None:
    expressions = [code for beginning in ("embedsink.open(", "embedsink.connect(") for _, code in inline(beginning)]
    assert len(expressions) >= 3
    for code in expressions:
        code = code.replace('"https://…"', repr(docs_folder.server.url)).replace(
            '"es_read_…"', repr(docs_folder.read_key)
        )
        assert eval(code, {"embedsink": embedsink}) is not None


@pytest.mark.parametrize("block", [one for one in blocks("python") if one.page.startswith(DECISIONS)], ids=label)
def test_every_measurement_of_a_decision_compiles_and_its_imports_exist(block: Block) -> None:
    compile(block.text, block.page, "exec")
    imports = re.findall(r"^(?:import|from) .+$", block.text, re.MULTILINE)
    assert imports
    exec("\n".join(imports), {})
