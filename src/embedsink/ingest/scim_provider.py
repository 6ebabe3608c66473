"""What the SCIM API offers: resource types, schemas and limits (RFC 7643, section 5)."""

from scim2_models import (
    AuthenticationScheme,
    Bulk,
    ChangePassword,
    ETag,
    Filter,
    Mutability,
    Patch,
    ScimProvider,
    ServiceProviderConfig,
    Sort,
)
from scim2_server.utils import load_default_resource_types, load_default_schemas

_GROUP_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:Group"
_RESULTS_MAX = 1_000
_BULK_OPERATIONS_MAX = 1_000


def create_provider(*, body_bytes_max: int) -> ScimProvider:
    """Return the description of the SCIM API, for bodies of at most `body_bytes_max` bytes.

    It has the schemas of RFC 7643. The names of a group's members, which the library's schema has in addition, are
    ignored: they are not stored.
    """
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
    schemas = load_default_schemas()
    [members] = [one for one in schemas[_GROUP_SCHEMA].attributes or () if one.name == "members"]
    [display] = [one for one in members.sub_attributes or () if one.name == "display"]
    display.mutability = Mutability.read_only
    return ScimProvider.from_discovery(schemas.values(), load_default_resource_types().values(), config=config)
