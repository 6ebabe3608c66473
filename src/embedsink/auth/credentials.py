"""All credentials that a server accepts: API keys, access tokens, and sessions. Each becomes a `Key`."""

from typing import TYPE_CHECKING

from embedsink.auth.key_cache import KeyCache
from embedsink.auth.keys import Key
from embedsink.auth.sessions import SessionKey, Sessions

if TYPE_CHECKING:
    from embedsink.auth.access_tokens import AccessTokens  # loads cryptography, which few servers need


class Credentials:
    """The API keys of `keys.json`, the access tokens of trusted issuers, and the sessions of people who have logged in.

    Args:
        keys: the API keys.
        sessions: the sessions, which browsers name in a cookie.
        access_tokens: the access tokens; None if `identity.toml` has no issuers.
    """

    def __init__(self, keys: KeyCache, sessions: Sessions, access_tokens: "AccessTokens | None" = None) -> None:
        self.sessions = sessions
        self._keys = keys
        self._access_tokens = access_tokens

    def find(self, token: str) -> Key | None:
        """Return the `Key` of a live API key or a valid access token; None if the text is neither.

        Raises:
            Refused: the text is an access token, and is not valid (`bad_credential`).
            Unavailable: the signing keys of the token's issuer must be fetched first (`not_ready`).
        """
        key = self._keys.find(token)
        if key is None and self._access_tokens is not None:
            return self._access_tokens.find(token)
        return key

    def find_api_key(self, token: str) -> Key | None:
        """Return the `Key` of a live API key; None if the text is not one."""
        return self._keys.find(token)

    def is_live(self, key: Key) -> bool:
        """Return whether a key that `find`, or `find` of the sessions, returned still grants the same."""
        if isinstance(key, SessionKey):
            return self.sessions.is_live(key)
        if self._keys.is_live(key):
            return True
        return self._access_tokens is not None and self._access_tokens.is_live(key)

    def origins(self) -> frozenset[str] | None:
        """Return the origins whose pages may send events with a live credential; None for any origin."""
        key_origins = self._keys.origins()
        if key_origins is None or self._access_tokens is None:
            return key_origins
        return key_origins | self._access_tokens.origins()

    async def find_when_ready(self, token: str) -> Key | None:
        """Return what `find` returns. If signing keys must be fetched first, wait for them for a few seconds.

        Raises the exceptions of `find`.
        """
        key = self._keys.find(token)
        if key is None and self._access_tokens is not None:
            return await self._access_tokens.find_when_ready(token)
        return key
