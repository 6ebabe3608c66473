"""What the SCIM API offers: resource types, schemas and limits (RFC 7643, section 5)."""

from scim2_models import (
    AuthenticationScheme,
    Bulk,
    ChangePassword,
    ETag,
    Filter,
    Patch,
    ScimProvider,
    ServiceProviderConfig,
    Sort,
)
from scim2_server.utils import load_default_resource_types, load_default_schemas

_RESULTS_MAX = 1_000
_BULK_OPERATIONS_MAX = 1_000


def create_provider(*, body_bytes_max: int) -> ScimProvider:
    """Return the description of the SCIM API, for bodies of at most `body_bytes_max` bytes."""
    config = ServiceProviderConfig(
        patch=Patch(supported=True),
        bulk=Bulk(supported=True, max_operations=_BULK_OPERATIONS_MAX, max_payload_size=body_bytes_max),
        filter=Filter(supported=True, max_results=_RESULTS_MAX),
        sort=Sort(supported=True),
        etag=ETag(supported=True),
        change_password=ChangePassword(supported=False),
        authentication_schemes=[
            AuthenticationScheme(
                type=AuthenticationScheme.Type.oauthbearertoken,
                name="Bearer token",
                description="A key of kind scim, or an access token with the scope embedsink:scim.",
                primary=True,
            )
        ],
    )
    return ScimProvider.from_discovery(
        load_default_schemas().values(), load_default_resource_types().values(), config=config
    )
