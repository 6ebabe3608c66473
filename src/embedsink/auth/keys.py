"""A key: what the holder of a credential may do, in which scope, from which pages and until when (spec 5)."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from embedsink.key_scope import KeyScope


class KeyKind(StrEnum):
    """The permission that a key grants."""

    INGEST = "ingest"  # A web page sends events.
    READ = "read"  # A person or a program reads reports.
    SYNC = "sync"  # A pipeline records the results of dbt syncs.
    SCIM = "scim"  # An identity provider provisions the directory of viewers.
    ADMIN = "admin"  # An operator runs the server.


@dataclass(frozen=True, slots=True)
class Key:
    """An API key or an access token, without the token itself, which is not stored. Times are epoch seconds.

    Args:
        key_id: the name in lists and logs. It grants nothing. Access tokens of one subject and scope have the same.
        kinds: the permissions. An API key has exactly one.
        label: a note for people; the subject of an access token.
        scope: the deployments and tenants that the key is limited to, and whether the key shows names.
        origins: the origins of the pages that may use the key; None for any origin. Programs may always use it.
        created_at: the time of creation.
        expires_at: the time from which the key is refused; None for never.
        revoked_at: the time of revocation; None if it was not revoked.
        digest: the SHA-256 of the token, in hex.
    """

    key_id: str
    kinds: frozenset[KeyKind]
    label: str
    scope: KeyScope
    origins: frozenset[str] | None
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    digest: str = field(repr=False)

    @property
    def kind(self) -> KeyKind:
        """The only permission of an API key."""
        [kind] = self.kinds
        return kind

    @property
    def shows_names(self) -> bool:
        """Whether reports contain the names of people in the directory."""
        return self.scope.shows_names

    def is_live(self, now: float) -> bool:
        """Return whether the key is neither revoked nor expired."""
        # Don't compare the time of revocation with `now`: setting the clock back must not restore a revoked key.
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def ended_at(self, now: float) -> float | None:
        """Return the time of revocation or of expiry, whichever is earlier; None while the key is live."""
        if self.is_live(now):
            return None
        return min(end for end in (self.revoked_at, self.expires_at) if end is not None)

    def grants_the_same(self, other: "Key") -> bool:
        """Return whether another key has the same permissions, scope and origins."""
        return (self.kinds, self.scope, self.origins) == (other.kinds, other.scope, other.origins)

    def allows_origin(self, origin: str) -> bool:
        """Return whether a page of this origin may use the key."""
        return self.origins is None or origin in self.origins


def format_time(seconds: float) -> str:
    """Return epoch seconds as ISO 8601 in UTC with milliseconds, the form in `keys.json`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
