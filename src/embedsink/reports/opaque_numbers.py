"""Numbers for readers who may not learn them: a scoped key must see nothing that counts what others send."""

import secrets
from hashlib import blake2s

_HALF_BITS = 32
_HALF_MASK = (1 << _HALF_BITS) - 1
# Four rounds with a pseudorandom function are a strong pseudorandom permutation (Luby and Rackoff).
_ROUNDS = range(4)


class OpaqueNumbers:
    """A permutation of the numbers from 0 to 2⁶⁴ − 1 by a secret of this process: a balanced Feistel cipher.

    The same number has the same opaque one until the process ends.
    """

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)

    def hide(self, number: int) -> int:
        """The opaque number of a number."""
        left, right = number >> _HALF_BITS, number & _HALF_MASK
        for turn in _ROUNDS:
            left, right = right, left ^ self._round(turn, right)
        return left << _HALF_BITS | right

    def reveal(self, opaque: int) -> int:
        """The number of an opaque number; of one that `hide` never gave, any."""
        left, right = opaque >> _HALF_BITS, opaque & _HALF_MASK
        for turn in reversed(_ROUNDS):
            left, right = right ^ self._round(turn, left), left
        return left << _HALF_BITS | right

    def _round(self, turn: int, half: int) -> int:
        mixed = blake2s(bytes((turn,)) + half.to_bytes(4), key=self.secret, digest_size=4)
        return int.from_bytes(mixed.digest())
