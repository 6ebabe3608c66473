"""Verification of OAuth 2.0 access tokens (RFC 9068).

A valid token becomes a `Key`, as an API key does, so all later checks are the same.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from embedsink.auth.claims import TokenKey, check_access_token, token_key
from embedsink.auth.identity import Issuer
from embedsink.auth.keys import Key
from embedsink.auth.signed_tokens import (
    TOKEN_CHARACTERS_MAX,
    InvalidToken,
    SignedToken,
    SigningKeysNotFetched,
)
from embedsink.auth.signing_keys import SigningKeys
from embedsink.auth.tokens import digest_of, looks_like_jwt
from embedsink.errors import Refused
from embedsink.reasons import Reason

# Verified tokens are remembered, because a verification takes much longer. Beyond this number, or this sum of their
# lengths, forget the oldest. A key takes up to eight times the memory of its token.
REMEMBERED_MAX = 10_000
REMEMBERED_CHARACTERS_MAX = 8_388_608


class _Remembered(NamedTuple):
    """The key of a verified token, and the length of the token."""

    key: TokenKey
    length: int


class AccessTokens:
    """Verifies access tokens, and remembers those that it has verified.

    Args:
        issuers: the trusted issuers.
        clock: returns the time in epoch seconds.
    """

    def __init__(self, issuers: Sequence[Issuer], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._remembered: dict[str, _Remembered] = {}  # by the digest of the token, the oldest first
        self._remembered_characters = 0
        self._issuers = {issuer.issuer: issuer for issuer in issuers}
        self._signing_keys = {
            issuer.issuer: SigningKeys(issuer.issuer, clock, jwks_url=issuer.jwks_url) for issuer in issuers
        }

    def find(self, token: str) -> Key | None:
        """Return the key of a valid access token; None if the text is not a signed JWT.

        Raises:
            Refused: the token is not valid (`bad_credential`). The message names the cause, which the token's holder
                can read in the token.
            SigningKeysNotFetched: the issuer may have a new signing key (`not_ready`).
        """
        if not looks_like_jwt(token) or len(token) > TOKEN_CHARACTERS_MAX:
            return None
        digest = digest_of(token)
        remembered = self._remembered.get(digest)
        key = None if remembered is None else remembered.key
        if key is None or not self.is_live(key):
            try:
                key = self._verify(token, digest)
            except InvalidToken as error:
                message = f"authorization: the access token {error}. Get a new one from its issuer."
                raise Refused(Reason.BAD_CREDENTIAL, message) from None
            self._remember(key, len(token))
        return key

    async def find_when_ready(self, token: str) -> Key | None:
        """Return what `find` returns. If the signing keys must be fetched first, wait for them for a few seconds.

        Raises the exceptions of `find`.
        """
        try:
            return self.find(token)
        except SigningKeysNotFetched as error:
            await error.signing_keys.wait_for_fetch()
            return self.find(token)

    def is_live(self, key: Key) -> bool:
        """Return whether a key that `find` returned has not expired, and its issuer still has the signing key."""
        if not isinstance(key, TokenKey) or not key.is_live(self._clock()):
            return False
        return self._signing_keys[key.issuer].contains(key.thumbprint)

    def origins(self) -> frozenset[str]:
        """Return the origins whose pages may use tokens."""
        return frozenset(chain.from_iterable(issuer.origins for issuer in self._issuers.values()))

    async def run(self) -> None:
        """Keep the signing keys of all issuers up to date, until this task is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for signing_keys in self._signing_keys.values():
                tasks.create_task(signing_keys.run())

    def _verify(self, token: str, digest: str) -> TokenKey:
        """Verify a token. Raise InvalidToken or SigningKeysNotFetched."""
        signed = SignedToken.parse(token)
        name = signed.claims.get("iss")
        issuer = self._issuers.get(name) if isinstance(name, str) else None
        if issuer is None:
            raise InvalidToken("has an issuer (iss) that this server does not trust")
        # Check the claims first: an expired token should not cause a fetch.
        check_access_token(signed, issuer, self._clock())
        thumbprint = signed.verify(self._signing_keys[issuer.issuer], issuer.algorithms)
        return token_key(signed.claims, issuer, digest=digest, thumbprint=thumbprint)

    def _remember(self, key: TokenKey, length: int) -> None:
        """Remember the key of a verified token. If there are too many, forget the oldest."""
        self._forget(key.digest)
        self._remembered[key.digest] = _Remembered(key, length)
        self._remembered_characters += length
        while len(self._remembered) > REMEMBERED_MAX or self._remembered_characters > REMEMBERED_CHARACTERS_MAX:
            self._forget(next(iter(self._remembered)))

    def _forget(self, digest: str) -> None:
        remembered = self._remembered.pop(digest, None)
        if remembered is not None:
            self._remembered_characters -= remembered.length
