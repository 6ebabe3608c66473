"""What the SCIM API offers: resource types, schemas and limits (RFC 7643, section 5)."""

from scim2_models import (
    AuthenticationScheme,
    Bulk,
    ChangePassword,
    ETag,
    Filter,
    Patch,
    ScimPolicy,
    ScimProvider,
    ServiceProviderConfig,
    Sort,
)
from scim2_server.utils import load_default_resource_types, load_default_schemas

from embedsink.directory.limits import BULK_OPERATIONS_MAX, SHORT_BODY_BYTES_MAX

_GROUP_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:Group"
_RESULTS_MAX = 1_000
# Identity providers send attributes that no schema has. Microsoft Entra ID removes members by `value`, and replaces
# entries that do not exist yet, such as the first email of a type.
_POLICY = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)


def create_provider(*, body_bytes_max: int) -> ScimProvider:
    """Return the description of the SCIM API, for bodies of at most `body_bytes_max` bytes."""
    config = ServiceProviderConfig(
        patch=Patch(supported=True),
        bulk=Bulk(
            supported=True,
            max_operations=BULK_OPERATIONS_MAX,
            max_payload_size=min(body_bytes_max, SHORT_BODY_BYTES_MAX),
        ),
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
    # The library's schema adds the names of members, which RFC 7643 does not have and the directory does not store.
    [members] = [one for one in schemas[_GROUP_SCHEMA].attributes or () if one.name == "members"]
    members.sub_attributes = [one for one in members.sub_attributes or () if one.name != "display"]
    return ScimProvider.from_discovery(
        schemas.values(), load_default_resource_types().values(), config=config, policy=_POLICY
    )
