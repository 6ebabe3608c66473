"""What a key is limited to: the one definition of the scope of a reader and of a sender."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyScope:
    """The deployments and the tenants that a key is limited to; None for all of them (spec 5.3)."""

    deployments: frozenset[int] | None = None
    tenants: frozenset[str] | None = None

    @property
    def is_limited(self) -> bool:
        """Whether some rows are outside the scope, so that nothing may depend on them."""
        return self.deployments is not None or self.tenants is not None

    def variables(self) -> dict[str, object]:
        """Return the session variables with which the views apply the scope (sql/macros/)."""
        return {
            "deployments": None if self.deployments is None else tuple(sorted(self.deployments)),
            "tenants": None if self.tenants is None else tuple(sorted(self.tenants)),
        }
