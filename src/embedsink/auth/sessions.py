"""The logins of people in a browser. The browser has a random token in a cookie; the server stores its SHA-256.

Sessions exist in memory only. A stolen data folder contains none, and a restart ends all of them
(docs/decisions/0008).
"""

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import islice

from embedsink.auth.key_cache import KeyCache
from embedsink.auth.keys import Key
from embedsink.auth.tokens import digest_of
from embedsink.errors import EmbedsinkError

# The maximum number of sessions of one key or person. Beyond it, the oldest ends.
SESSIONS_PER_KEY_MAX = 10_000
# How long a logout token is remembered, so that a login that was in progress is refused. The exchange of a code takes
# seconds.
LOGOUT_S = 60
LOGOUTS_MAX = 10_000


class LoggedOut(EmbedsinkError):
    """The person logged out at the provider before the login was finished."""


@dataclass(frozen=True, slots=True)
class SessionKey(Key):
    """The key of a session. Its digest is that of the session's token."""


@dataclass(frozen=True, slots=True)
class Person:
    """What a token of an OpenID provider says of a person.

    Args:
        issuer: the provider.
        subject: the claim `sub`; empty in a logout token that names a session only.
        session_id: the claim `sid`, the session at the provider; None if the token has none.
        issued_at: the claim `iat`, in epoch seconds.
    """

    issuer: str
    subject: str
    session_id: str | None
    issued_at: float

    def is_logged_out_by(self, logout: "Person") -> bool:
        """Return whether a logout token ends the session that began with this ID token.

        A `sid` in both tokens decides. Otherwise, the subject does, and a token that is repeated ends no later session.
        """
        if self.issuer != logout.issuer or logout.subject not in ("", self.subject):
            return False
        if self.session_id is not None and logout.session_id is not None:
            return self.session_id == logout.session_id
        return logout.subject != "" and self.issued_at <= logout.issued_at


@dataclass(slots=True)
class _Session:
    """A session: the key of the login, its times in epoch seconds, and the person, if one logged in at a provider."""

    key: Key
    person: Person | None
    ends_at: float
    used_at: float


class Sessions:
    """The sessions of a server.

    Args:
        keys: the API keys.
        clock: returns the time in epoch seconds.
        timeout_s: the duration of a session.
        idle_timeout_s: the time without a request after which a session ends.
    """

    def __init__(self, keys: KeyCache, clock: Callable[[], float], *, timeout_s: float, idle_timeout_s: float) -> None:
        self._keys = keys
        self._clock = clock
        self._timeout_s = timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._sessions: dict[str, _Session] = {}  # by the digest of the token, the oldest first
        self._logouts: deque[tuple[float, Person]] = deque(maxlen=LOGOUTS_MAX)  # with their times, the oldest first

    def start(self, key: Key, person: Person | None = None) -> str:
        """Start a session, and return its token.

        Args:
            key: the API key that was entered, or the key of a person.
            person: the person; None for an API key.

        Raises:
            LoggedOut: the person has logged out at the provider since the ID token was issued.
        """
        now = self._clock()
        while self._logouts and self._logouts[0][0] < now - LOGOUT_S:
            self._logouts.popleft()
        if person is not None and any(person.is_logged_out_by(logout) for _, logout in self._logouts):
            raise LoggedOut("the person logged out at the provider meanwhile.")
        self._end_where(lambda session: not self._is_live(session, now))
        of_key = [digest for digest, session in self._sessions.items() if session.key.key_id == key.key_id]
        for digest in islice(of_key, max(0, len(of_key) - SESSIONS_PER_KEY_MAX + 1)):
            del self._sessions[digest]
        token = secrets.token_urlsafe(32)
        self._sessions[digest_of(token)] = _Session(key, person, ends_at=now + self._timeout_s, used_at=now)
        return token

    def find(self, token: str) -> SessionKey | None:
        """Return the key of a live session, which grants what the login grants now. Each call counts as use."""
        digest = digest_of(token)
        session = self._use(digest)
        key = None if session is None else self._current_key(session)
        if key is None:
            return None
        return SessionKey(**{field.name: getattr(key, field.name) for field in fields(Key)} | {"digest": digest})

    def has(self, token: str) -> bool:
        """Return whether a token is that of a live session. This doesn't count as use."""
        session = self._sessions.get(digest_of(token))
        return session is not None and self._is_live(session, self._clock())

    def is_live(self, key: SessionKey) -> bool:
        """Return whether the session of a key that `find` returned still grants the same. Each call counts as use."""
        session = self._use(key.digest)
        current = None if session is None else self._current_key(session)
        return current is not None and current.grants_the_same(key)

    def end(self, token: str) -> None:
        """End a session."""
        self._sessions.pop(digest_of(token), None)

    def end_of_person(self, logout: Person) -> int:
        """End the sessions that a logout token ends, and logins in progress. Return the number of sessions."""
        self._logouts.append((self._clock(), logout))
        return self._end_where(lambda session: session.person is not None and session.person.is_logged_out_by(logout))

    def _use(self, digest: str) -> _Session | None:
        """Return a session, and record that it is used; None if it is unknown or has ended."""
        session = self._sessions.get(digest)
        now = self._clock()
        if session is None or not self._is_live(session, now):
            return None
        session.used_at = now
        return session

    def _is_live(self, session: _Session, now: float) -> bool:
        is_within_time = now < session.ends_at and now < session.used_at + self._idle_timeout_s
        return is_within_time and self._current_key(session) is not None

    def _current_key(self, session: _Session) -> Key | None:
        """Return what a session grants now: the operator may have edited the key. None if the key has ended."""
        return session.key if session.person is not None else self._keys.current(session.key)

    def _end_where(self, condition: Callable[[_Session], bool]) -> int:
        """End the sessions that fulfil a condition. Return their number."""
        ended = [digest for digest, session in self._sessions.items() if condition(session)]
        for digest in ended:
            del self._sessions[digest]
        return len(ended)
