"""Revisions by deployment: texts that change when rows may have changed, without revealing other deployments' loads."""

import secrets
from collections.abc import Collection, Iterable
from typing import NamedTuple

# Above this number, all revisions are discarded. Their readers then get one change without new rows.
DEPLOYMENTS_MAX = 10_000


class _Load(NamedTuple):
    loads: int  # the number of loads so far
    number: int  # the number of the newest loaded segment


class Revisions:
    """The last load that changed each deployment. One thread loads; any thread may read."""

    def __init__(self) -> None:
        self._opening = ""
        self._last = self._floor = _Load(0, 0)
        self._by_deployment: dict[int, _Load] = {}

    def renew(self) -> None:
        """Change all revisions."""
        self._opening = secrets.token_hex(8)

    def move(self, deployments: Iterable[int], *, number: int) -> None:
        """Record a load that changed rows of these deployments.

        Args:
            deployments: all changed deployments, and possibly unchanged ones.
            number: the number of the newest loaded segment.
        """
        self._last = _Load(self._last.loads + 1, max(self._last.number, number))
        if len(self._by_deployment) >= DEPLOYMENTS_MAX:
            self._floor, self._by_deployment = self._last, {}
        self._by_deployment |= dict.fromkeys(deployments, self._last)

    def of(self, deployments: Collection[int] | None) -> str:
        """Return a text that changes when rows of these deployments may have changed; None means all.

        It depends on other deployments too, so hash it before a client gets it.
        """
        if deployments is None:
            return f"{self._opening} {self._last.loads}"
        return f"{self._opening} {[(number, self._load_of(number).loads) for number in sorted(deployments)]}"

    def last_number(self, deployments: Collection[int]) -> int:
        """Return the newest segment at the last change of these deployments; 0 if none changed in this process."""
        return max((self._load_of(number).number for number in deployments), default=0)

    def _load_of(self, deployment: int) -> _Load:
        return self._by_deployment.get(deployment, self._floor)
