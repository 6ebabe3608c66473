"""The scope of a key: the deployments and tenants that it is limited to, and whether it shows names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyScope:
    """What a reader with a key may see (spec 5.3).

    Args:
        deployments: the deployments that the key is limited to; None for all of them.
        tenants: the tenants that the key is limited to; None for all of them.
        shows_names: whether reports contain the names of people in the directory.
    """

    deployments: frozenset[int] | None = None
    tenants: frozenset[str] | None = None
    shows_names: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether the key is limited. A response to a limited key must not depend on rows outside the scope."""
        return self.deployments is not None or self.tenants is not None

    def allows_deployment(self, deployment: int) -> bool:
        """Return whether the deployment is in the scope."""
        return self.deployments is None or deployment in self.deployments

    def allows_tenant(self, tenant: str) -> bool:
        """Return whether the tenant is in the scope."""
        return self.tenants is None or tenant in self.tenants

    def variables(self) -> dict[str, object]:
        """Return the session variables with which the views apply the scope (sql/macros/)."""
        return {
            "deployments": None if self.deployments is None else tuple(sorted(self.deployments)),
            "tenants": None if self.tenants is None else tuple(sorted(self.tenants)),
            "shows_names": self.shows_names,
        }


EVERYTHING = KeyScope(shows_names=True)
