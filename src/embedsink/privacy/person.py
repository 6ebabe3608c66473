"""A person in the scope of an access request or an erasure."""

from dataclasses import dataclass
from typing import Self

from embedsink.key_scope import KeyScope
from embedsink.privacy.redaction import Privacy


@dataclass(frozen=True, slots=True)
class Person:
    """A person, everywhere or in some deployments or tenants.

    Args:
        viewer: the viewer, as the host page sends it.
        deployments: the deployments that the request is limited to; None for all.
        tenants: the tenants that the request is limited to; None for all.
    """

    viewer: str
    deployments: frozenset[int] | None = None
    tenants: frozenset[str] | None = None

    @classmethod
    def within(cls, viewer: str, *, tenant: str | None, deployment: int | None) -> Self:
        """Return a person within one tenant, or one deployment, or both; None stands for all."""
        return cls(
            viewer,
            deployments=None if deployment is None else frozenset({deployment}),
            tenants=None if tenant is None else frozenset({tenant}),
        )

    @property
    def is_limited(self) -> bool:
        """Whether the request is limited to some deployments or tenants."""
        return self.deployments is not None or self.tenants is not None

    def variables(self, privacy: Privacy) -> dict[str, object]:
        """Return the session variables that select the person, also by the hashes of the viewer and the tenants."""
        scope = privacy.stored_scope(KeyScope(self.deployments, self.tenants, shows_names=True))
        return {**scope.variables(), "viewers": privacy.stored_forms("viewer", self.viewer)}
