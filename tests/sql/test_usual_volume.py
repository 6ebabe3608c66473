"""The usual volume agrees with medians over all days, including days without exports."""

import math
from itertools import product
from statistics import median

import duckdb

VOLUMES = [
    7,
    1,
    900,
    40,
    40,
    3_000,
    2,
    65,
    8,
    1_000_000,
    5,
    5,
    90,
    11,
    300,
    4,
    77,
    6,
    20,
    9,
    33,
    2,
    1,
    8,
    70,
    12,
    3,
    10,
]


def usual(volumes: list[int], day_count: int) -> int:
    every_day = volumes + [0] * (day_count - len(volumes))
    middle = median(every_day)
    beyond = middle + 4 * 1.4826 * median(abs(value - middle) for value in every_day)
    return math.ceil(max(1_000, beyond, 2 * median(volumes) if volumes else 0))


def test_the_usual_volume_includes_days_without_a_volume(connection: duckdb.DuckDBPyConnection) -> None:
    for day_count, start in product(range(3, 29), (0, 5, 13)):
        lists = [(VOLUMES[start:] + VOLUMES[:start])[:count] for count in range(day_count + 1)]
        rows = connection.execute(
            "select usual_volume_max(volumes, $2) from (select unnest($1::bigint[][]) as volumes)", [lists, day_count]
        ).fetchall()
        assert [value for (value,) in rows] == [usual(volumes, day_count) for volumes in lists]
    assert connection.execute("select usual_volume_max(null::bigint[], 3)").fetchall() == [(1_000,)]
    assert connection.execute("select usual_volume_max([9], 2)").fetchall() == [(None,)]
