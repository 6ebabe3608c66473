"""A cache of section responses. After each load all pages request the same sections at once, and share the queries."""

from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from embedsink.concurrency.single_flight import SingleFlight
from embedsink.concurrency.throttle import Throttle

# These are not settings: a response is useful until the next load, for a minute at most, and only to pages of the same
# section. The cache has room for 32 sections in that time.
RESPONSES_MAX = 32
RESPONSE_BYTES_MAX = 4 * 1_048_576

Query = Callable[[], Coroutine[Any, Any, bytes]]


class SectionCache:
    """The latest responses by entity tag, and the queries in progress."""

    def __init__(self) -> None:
        self._responses: OrderedDict[str, bytes] = OrderedDict()
        self._in_progress = SingleFlight()

    async def get(
        self,
        request_key: tuple[str, ...],
        current_tag: Callable[[], str],
        query: Query,
        *,
        throttle: Throttle,
        key_id: str,
    ) -> tuple[str, bytes]:
        """Return a response and its tag, from the cache or from a throttled query.

        Requests with the same key share a query while it waits in the throttle, because it will include all loads until
        it starts. Other keys wait separately: the first key may have many queries in the queue.

        Args:
            request_key: identifies the response until the next load.
            current_tag: returns the tag of a query that would start now.
            query: runs the query.
            throttle: the queue of queries.
            key_id: the key whose turn in the queue is used.
        """
        if (tag := current_tag()) in self._responses or (key_id, tag) in self._in_progress:
            return tag, await self._get_by_tag(tag, query, key_id)

        async def query_in_turn() -> tuple[str, bytes]:
            self._in_progress.forget((key_id, request_key))
            tag = current_tag()
            return tag, await self._get_by_tag(tag, query, key_id)

        return await self._in_progress.run((key_id, request_key), lambda: throttle.run(query_in_turn, key_id=key_id))

    async def _get_by_tag(self, tag: str, query: Query, key_id: str) -> bytes:
        if tag in self._responses:
            self._responses.move_to_end(tag)
            return self._responses[tag]

        async def query_and_store() -> bytes:
            response = await query()
            self._store(tag, response)
            return response

        return await self._in_progress.run((key_id, tag), query_and_store)

    def _store(self, tag: str, response: bytes) -> None:
        self._responses[tag] = response
        while len(self._responses) > RESPONSES_MAX or sum(map(len, self._responses.values())) > RESPONSE_BYTES_MAX:
            self._responses.popitem(last=False)
