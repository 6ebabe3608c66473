"""A cache of section responses. After each load, all open pages request the same sections, and share the queries."""

from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from embedsink.concurrency.single_flight import SingleFlight
from embedsink.concurrency.throttle import Throttle

# These are not settings: a response is useful until the next load, for a minute at most, and only to pages of the same
# section. So room for 32 responses is enough.
RESPONSES_MAX = 32
CACHED_BYTES_MAX = 4 * 1_048_576

Query = Callable[[], Coroutine[Any, Any, bytes]]


class SectionCache:
    """The latest responses by entity tag, and the queries in progress."""

    def __init__(self) -> None:
        self._responses: OrderedDict[str, bytes] = OrderedDict()
        self._waiting = SingleFlight()  # queries that wait in the throttle, by key id and request key
        self._running = SingleFlight()  # queries that have started, by key id and entity tag

    async def get(
        self,
        request_key: tuple[str, ...],
        current_tag: Callable[[], str],
        query: Query,
        *,
        throttle: Throttle,
        key_id: str,
    ) -> tuple[str, bytes]:
        """Return the entity tag and the body of a response, from the cache or from a throttled query.

        A request joins a query of its API key that still waits in the throttle, because that query will include all
        loads so far. It joins no query of another key, because many queries of that key may run first.

        Args:
            request_key: identifies the response until the next load.
            current_tag: returns the tag of a query that would start now.
            query: runs the query.
            throttle: the queue of queries.
            key_id: the API key under which the query waits in the queue.
        """
        tag = current_tag()
        # If the response is cached or its query is running, don't wait in the throttle.
        if tag in self._responses or (key_id, tag) in self._running:
            return tag, await self._get_by_tag(tag, query, key_id)

        async def query_now() -> tuple[str, bytes]:
            # This query misses the loads from now on, so later requests must not share it.
            self._waiting.forget((key_id, request_key))
            tag_at_start = current_tag()
            return tag_at_start, await self._get_by_tag(tag_at_start, query, key_id)

        return await self._waiting.run((key_id, request_key), lambda: throttle.run(query_now, key_id=key_id))

    async def _get_by_tag(self, tag: str, query: Query, key_id: str) -> bytes:
        """Return the cached response with this tag. If it is not cached, run the query, or join a running one."""
        if tag in self._responses:
            self._responses.move_to_end(tag)
            return self._responses[tag]

        async def query_and_store() -> bytes:
            response = await query()
            self._store(tag, response)
            return response

        return await self._running.run((key_id, tag), query_and_store)

    def _store(self, tag: str, response: bytes) -> None:
        """Store a response. Beyond the limits, drop the least recently used responses."""
        if len(response) > CACHED_BYTES_MAX:
            return  # It would displace all others, and then itself.
        self._responses[tag] = response
        while self._exceeds_limits():
            self._responses.popitem(last=False)

    def _exceeds_limits(self) -> bool:
        byte_count = sum(map(len, self._responses.values()))
        return len(self._responses) > RESPONSES_MAX or byte_count > CACHED_BYTES_MAX
