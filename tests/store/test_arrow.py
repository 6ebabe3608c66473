"""Arrow batches have the rows of DuckDB, and no old memory in the slots of nulls."""

import struct
from typing import Any

import duckdb
import nanoarrow
import pytest

from embedsink.store.arrow import stream_of

ALTERNATING = b"\x05"  # The validity of three values, of which the second is null.
OLD = b"OLD MEMORY OF OTHERS" * 4


def batch(schema: Any, data: bytes, children: tuple[Any, ...] = ()) -> Any:
    """Return an array of three values, of which the second is null."""
    buffers = [ALTERNATING, data] if data else [ALTERNATING]
    return nanoarrow.c_array_from_buffers(schema, 3, buffers, children=children)


def only_array(stream: Any) -> Any:
    [array] = stream
    return array.view()


@pytest.mark.parametrize(
    ("schema", "data", "expected"),
    [
        (nanoarrow.int64(), struct.pack("<q8sq", 1, OLD[:8], 3), struct.pack("<3q", 1, 0, 3)),
        (nanoarrow.float64(), struct.pack("<d8sd", 1.5, OLD[:8], 3.5), struct.pack("<3d", 1.5, 0, 3.5)),
        (nanoarrow.decimal128(30, 2), b"a" * 16 + OLD[:16] + b"c" * 16, b"a" * 16 + bytes(16) + b"c" * 16),
        (nanoarrow.bool_(), b"\xff", b"\x05"),
    ],
    ids=["integer", "double", "decimal", "boolean"],
)
def test_the_slots_of_nulls_are_zero(schema: Any, data: bytes, expected: bytes) -> None:
    row = nanoarrow.struct({"column": nanoarrow.c_schema(schema)})
    rows = nanoarrow.c_array_from_buffers(row, 3, [None], children=[batch(schema, data)])
    for array in (only_array(stream_of(batch(schema, data))), next(iter(only_array(stream_of(rows)).children))):
        assert bytes(memoryview(array.buffer(1))) == expected
        assert (array.null_count, bytes(memoryview(array.buffer(0)))[0] & 7) == (1, 5)


def test_the_rows_are_those_of_the_relation() -> None:
    query = """
        select
            if(i % 2 = 0, i, null) as integer, if(i % 3 = 0, 'x' || i, null) as text,
            if(i % 2 = 0, i % 4 = 0, null) as flag,
            if(i % 2 = 0, timestamp '2026-11-28', null) as time, if(i % 2 = 0, [i, null], null) as list,
            if(i % 5 = 0, {'a': if(i % 2 = 0, i, null)}, null) as object, null as nothing, i
        from range(3000) as numbers (i)
    """
    with duckdb.connect() as connection:
        for condition in ("", "where false"):
            relation = connection.sql(query + condition)
            expected = list(nanoarrow.ArrayStream(relation).iter_py())
            assert list(nanoarrow.ArrayStream(stream_of(connection.sql(query + condition))).iter_py()) == expected
            assert len(expected) == (0 if condition else 3_000)
