"""What tells readers whether their rows may have changed, for each deployment: nobody learns of others' loads."""

import secrets
from collections.abc import Collection, Iterable
from typing import NamedTuple

# Beyond so many, all are forgotten: their readers are once told of a change that there was not.
DEPLOYMENTS_MAX = 10_000


class _Load(NamedTuple):
    loads: int  # so many up to it
    number: int  # of the newest segment that was loaded by then


class Revisions:
    """The last load that touched each deployment. One thread loads; any may ask."""

    def __init__(self) -> None:
        self._opening = ""
        self._last = self._floor = _Load(0, 0)
        self._by_deployment: dict[int, _Load] = {}

    def renew(self) -> None:
        """All rows may have changed."""
        self._opening = secrets.token_hex(8)

    def move(self, deployments: Iterable[int], *, number: int) -> None:
        """A load has touched the rows of these deployments.

        Args:
            deployments: superfluous ones do no harm, missing ones do.
            number: of the newest segment that was loaded.
        """
        self._last = _Load(self._last.loads + 1, max(self._last.number, number))
        if len(self._by_deployment) >= DEPLOYMENTS_MAX:
            self._floor, self._by_deployment = self._last, {}
        self._by_deployment |= dict.fromkeys(deployments, self._last)

    def of(self, deployments: Collection[int] | None) -> str:
        """Return a text that changes when rows of these deployments may have changed; None is all.

        It tells of other deployments, so hash it before a client gets it.
        """
        if deployments is None:
            return f"{self._opening} {self._last.loads}"
        return f"{self._opening} {[(number, self._load_of(number).loads) for number in sorted(deployments)]}"

    def last_number(self, deployments: Collection[int]) -> int:
        """The newest segment that was loaded when these deployments were last touched; 0 for never in this process."""
        return max((self._load_of(number).number for number in deployments), default=0)

    def _load_of(self, deployment: int) -> _Load:
        return self._by_deployment.get(deployment, self._floor)
