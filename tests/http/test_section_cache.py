"""The cache of dashboard sections."""

import pytest

import embedsink.http.section_cache
from embedsink.http.section_cache import SectionCache


def test_a_response_above_the_limit_displaces_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.http.section_cache, "CACHED_BYTES_MAX", 10)
    cache = SectionCache()
    cache._store("small", b"12345")
    cache._store("large", b"x" * 11)
    assert list(cache._responses) == ["small"]
