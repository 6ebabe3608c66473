"""Encrypted numbers for scoped keys, which must not learn how much other deployments send."""

import secrets
from hashlib import blake2s

_HALF_BITS = 32
_HALF_MASK = (1 << _HALF_BITS) - 1
# Four rounds with a pseudorandom function are a strong pseudorandom permutation (Luby and Rackoff).
_ROUNDS = range(4)


class OpaqueNumbers:
    """A balanced Feistel cipher on the numbers from 0 to 2⁶⁴ − 1, with a secret of this process.

    A number has the same opaque number until the process ends.
    """

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)

    def hide(self, number: int) -> int:
        """Return the opaque number of a number."""
        left, right = number >> _HALF_BITS, number & _HALF_MASK
        for round_ in _ROUNDS:
            left, right = right, left ^ self._mix(round_, right)
        return left << _HALF_BITS | right

    def reveal(self, opaque: int) -> int:
        """Return the number of an opaque number; an arbitrary one if `hide` did not return it."""
        left, right = opaque >> _HALF_BITS, opaque & _HALF_MASK
        for round_ in reversed(_ROUNDS):
            left, right = right ^ self._mix(round_, left), left
        return left << _HALF_BITS | right

    def _mix(self, round_: int, half: int) -> int:
        digest = blake2s(bytes((round_,)) + half.to_bytes(4), key=self.secret, digest_size=4)
        return int.from_bytes(digest.digest())
