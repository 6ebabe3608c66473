"""Encrypted numbers for scoped keys, which must not learn how much others send."""

import secrets
from hashlib import blake2s

_HALF_BITS = 32
_HALF_BYTES = _HALF_BITS // 8
_HALF_MASK = (1 << _HALF_BITS) - 1
_SECRET_BYTES = 32
# Four rounds with a pseudorandom function are a strong pseudorandom permutation (Luby and Rackoff).
_ROUNDS = range(4)


class NumberCipher:
    """A balanced Feistel cipher on the numbers from 0 to 2⁶⁴ − 1.

    The secret is random and lasts until the process ends.
    """

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(_SECRET_BYTES)

    def encrypt(self, number: int) -> int:
        """Return the encrypted number: in each round, swap the halves, and mix one half with the other (Feistel)."""
        left, right = number >> _HALF_BITS, number & _HALF_MASK
        for round_number in _ROUNDS:
            left, right = right, left ^ self._round_function(round_number, right)
        return left << _HALF_BITS | right

    def decrypt(self, encrypted: int) -> int:
        """Return the number whose encryption is `encrypted`: undo the rounds of `encrypt` in reverse order.

        Any number from 0 to 2⁶⁴ − 1 is accepted.
        """
        left, right = encrypted >> _HALF_BITS, encrypted & _HALF_MASK
        for round_number in reversed(_ROUNDS):
            left, right = right ^ self._round_function(round_number, left), left
        return left << _HALF_BITS | right

    def _round_function(self, round_number: int, half: int) -> int:
        """Return a pseudorandom number of 32 bits for one half of a number."""
        content = bytes((round_number,)) + half.to_bytes(_HALF_BYTES)
        return int.from_bytes(blake2s(content, key=self.secret, digest_size=_HALF_BYTES).digest())
