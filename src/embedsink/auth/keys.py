"""A key: who may do what, where, and until when (spec 5). Its token is not in it."""

from dataclasses import dataclass, field
from enum import StrEnum


class KeyKind(StrEnum):
    """Who holds a key.

    A page that sends events, a person who reads reports, a pipeline that records dbt syncs, or whoever runs the server.
    """

    INGEST = "ingest"
    READ = "read"
    SYNC = "sync"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Key:
    """What is known of a key. Times are epoch seconds, in whole milliseconds.

    Args:
        key_id: its name in lists and logs; it opens nothing.
        deployments: the only ones that it is good for; None for all (spec 5.3).
        origins: the only pages that may use it; empty for any, and for programs that are no page. A sync key has none.
        digest: the SHA-256 of its token, in hex.
    """

    key_id: str
    kind: KeyKind
    label: str
    deployments: frozenset[int] | None
    origins: frozenset[str]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    digest: str = field(repr=False)

    def is_live(self, now: float) -> bool:
        """Whether the key is neither revoked nor expired."""
        # Revoked is revoked, whenever that was: a clock that is set back must not revive the key.
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def ended_at(self, now: float) -> float | None:
        """When it was revoked or expired; None while it is live."""
        ends = [at for at in (self.revoked_at, self.expires_at) if at is not None]
        return None if self.is_live(now) else min(ends)

    def allows_origin(self, origin: str) -> bool:
        """Whether a page of this origin may use the key."""
        return not self.origins or origin in self.origins
