"""Batches of rows in the Arrow format, without the old memory that DuckDB leaves in the slots of nulls.

The format does not define the content of these slots. Old memory could be data of tenants that the reader may not see.
"""

from collections.abc import Iterator
from typing import Any

import nanoarrow
import numpy
from nanoarrow.c_array_stream import CArrayStream

BITS_OF_BYTE = 8


def stream_of(rows: Any) -> CArrayStream:
    """Return the batches of a relation of DuckDB, with zeros in the slots of nulls."""
    batches = nanoarrow.c_array_stream(rows)
    schema = batches.get_schema()
    return CArrayStream.from_c_arrays([_copy(batch, schema) for batch in batches], schema)


def _copy(array: Any, schema: Any) -> Any:
    """Return a copy of an array and of its children, with zeros in the slots of nulls."""
    if array.offset or array.dictionary is not None:
        raise ValueError("DuckDB sent a slice or a dictionary, which this function does not copy.")
    children = [_copy(child, child_schema) for child, child_schema in zip(array.children, schema.children, strict=True)]
    view = array.view()
    return nanoarrow.c_array_from_buffers(
        schema, view.length, _buffers(view), null_count=view.null_count, children=children
    )


def _buffers(view: Any) -> Iterator[Any]:
    """Yield the buffers of an array: validity, then offsets or data. The slots of nulls in the data are zero.

    Strings need no change: a null has no bytes of its own. Nor do lists: their elements are a child.
    """
    buffers = [numpy.frombuffer(memoryview(buffer), numpy.uint8) for buffer in view.buffers]
    types = [view.buffer_type(index) for index in range(view.n_buffers)]
    if types != ["validity", "data"] or not buffers[0].size:  # Without validity, no value is null.
        yield from (buffer if buffer.size else None for buffer in buffers)
        return
    validity, data = buffers
    yield validity
    is_valid = numpy.unpackbits(validity, count=view.length, bitorder="little")
    bits_of_slot = view.buffer(1).element_size_bits
    if bits_of_slot == 1:  # Booleans are bits.
        yield numpy.packbits(numpy.unpackbits(data, count=view.length, bitorder="little") & is_valid, bitorder="little")
        return
    slots = data.reshape(-1, bits_of_slot // BITS_OF_BYTE)[: view.length].copy()
    slots[is_valid == 0] = 0
    yield slots
