"""Dashboards of an empty store."""

import pytest

from embedsink.dashboards.files import read_dashboards
from tests.support.app import Server

DASHBOARDS = read_dashboards()


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_every_tile_is_empty_without_events(server: Server, name: str) -> None:
    key, empty_count = server.key("read"), 0
    for section in DASHBOARDS[name].sections:
        response = server.get(f"/api/v1/dashboards/{name}/sections/{section.id}", key=key)
        assert response.status_code == 200, response.text
        charts = response.json()["charts"]
        assert set(charts) == {tile.id for tile in section.tiles}
        for tile in section.tiles:
            if tile.kind in ("chart", "table"):
                assert charts[tile.id]["rows"] == [], tile.id
                empty_count += 1
            elif tile.kind == "number":
                assert not charts[tile.id]["value"], tile.id
    assert empty_count >= 2
