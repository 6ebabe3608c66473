"""The scope of a key: the deployments and tenants that it is limited to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyScope:
    """The deployments and the tenants that a key is limited to; None for all of them (spec 5.3)."""

    deployments: frozenset[int] | None = None
    tenants: frozenset[str] | None = None

    @property
    def is_limited(self) -> bool:
        """Whether the key is limited. A response to a limited key must not depend on rows outside the scope."""
        return self.deployments is not None or self.tenants is not None

    def variables(self) -> dict[str, object]:
        """Return the session variables with which the views apply the scope (sql/macros/)."""
        return {
            "deployments": None if self.deployments is None else tuple(sorted(self.deployments)),
            "tenants": None if self.tenants is None else tuple(sorted(self.tenants)),
        }
