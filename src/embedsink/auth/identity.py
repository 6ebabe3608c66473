"""The identity providers that the server trusts: the file `identity.toml` in the data folder.

The parser is strict: a typing error must not grant access.
"""

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from embedsink.auth.key_schema import Origin
from embedsink.auth.keys import KeyKind
from embedsink.auth.parsing import ALL
from embedsink.errors import Misconfigured, preview
from embedsink.net import is_loopback

# No symmetric algorithms: an attacker could use a public key as the secret.
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"]
CALLBACK_PATH = "/login/callback"
# The path of a provider's configuration, after its issuer (OpenID Connect Discovery 1.0, section 4).
CONFIGURATION_PATH = "/.well-known/openid-configuration"
_URL_DESCRIPTION = "an https:// URL, or an http:// URL of this machine, without a query"
_CLAIM_DESCRIPTION = "the name of a claim"
_ROLES_DESCRIPTION = "a list of groups or roles, without `*`"


def check_url(url: object, *, allow_http: bool = True, allow_query: bool = False) -> str:
    """Return a URL unchanged. Raise ValueError unless it is an HTTPS URL, or an HTTP URL of this machine.

    Args:
        url: the URL.
        allow_http: whether to accept HTTP URLs of this machine.
        allow_query: whether to accept a query.
    """
    if not isinstance(url, str) or not url.isascii() or not url.isprintable():
        raise ValueError("not a URL")
    parts = urlsplit(url)
    is_loopback_url = parts.scheme == "http" and is_loopback(parts.hostname or "")
    is_allowed = parts.scheme == "https" or (allow_http and is_loopback_url)
    # Reading `port` raises ValueError if it is not a port.
    if not is_allowed or not parts.hostname or parts.port == 0 or parts.username is not None:
        raise ValueError("not a URL with HTTPS")
    if (parts.query and not allow_query) or parts.fragment:
        raise ValueError("has a query or a fragment")
    return url


def check_text(text: str) -> str:
    """Return a text unchanged. Raise ValueError if it is empty, not printable, or has spaces at its ends."""
    if not text or not text.isprintable() or text != text.strip():
        raise ValueError("not a text")
    return text


def check_group(group: str) -> str:
    """Return the name of a group unchanged. Raise ValueError for `ALL`, which permits no person."""
    if group == ALL:
        raise ValueError("not a group")
    return group


_Url = Annotated[str, AfterValidator(check_url)]
_ServerUrl = Annotated[Origin, AfterValidator(check_url)]
_Text = Annotated[str, AfterValidator(check_text)]
_Group = Annotated[_Text, AfterValidator(check_group)]
_ScopeName = Annotated[_Text, Field(pattern=r"^\S+$")]


class Provider(BaseModel):
    """An identity provider. A field's description completes the error message "… is not".

    Args:
        issuer: the value of the claim `iss`.
        algorithms: the accepted signature algorithms (RFC 7518, RFC 9864).
        deployments_claim: the claim with the deployments that a person or token is limited to; None for no limit.
        tenants_claim: the claim with the tenants that a person or token is limited to; None for no limit.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    issuer: _Url = Field(description=_URL_DESCRIPTION)
    algorithms: list[Algorithm] = Field(
        ["RS256", "PS256", "ES256"],
        min_length=1,
        description="a list of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 and Ed25519",
    )
    deployments_claim: _Text | None = Field(None, description=_CLAIM_DESCRIPTION)
    tenants_claim: _Text | None = Field(None, description=_CLAIM_DESCRIPTION)


class Issuer(Provider):
    """An issuer whose access tokens the server accepts (RFC 9068).

    Args:
        audience: a value that the claim `aud` must contain. It identifies this server.
        jwks_url: the URL of the issuer's JWK Set (RFC 7517); None to read it from the issuer's OpenID configuration.
        token_type: the media type in the header `typ`, without `application/`. Some issuers send `JWT`, which RFC 9068
            forbids.
        scope_claim: the claim with the scopes: a text with spaces, or a list.
        origins: the origins of the pages that may use the tokens. Programs may always use them.
    """

    audience: _Text = Field(description="a text")
    jwks_url: _Url | None = Field(None, description=_URL_DESCRIPTION)
    token_type: Literal["at+jwt", "JWT"] = Field("at+jwt", description='"at+jwt" or "JWT"')
    scope_claim: _Text = Field("scope", description=_CLAIM_DESCRIPTION)
    origins: list[Origin] = Field([], description="a list of origins, such as https://app.example.com")

    def accepts_id_tokens_of(self, login: "Login") -> bool:
        """Return whether an ID token of a login would be a valid access token."""
        return (self.token_type, self.issuer, self.audience) == ("JWT", login.issuer, login.client_id)


class Login(Provider):
    """The OpenID provider with which people log in to the dashboards (OpenID Connect Core 1.0).

    Args:
        client_id: the id of this server at the provider.
        server_url: the origin of this server, as browsers see it.
        scopes: the scopes that the server requests; `openid` is required.
        role_claim: the claim with the groups or roles of a person: a text, or a list.
        readers: the values of `role_claim` that permit reading.
        admins: the values of `role_claim` that permit everything.
        names: the values of `role_claim` with which a reader sees the names of people in reports.
    """

    client_id: _Text = Field(description="a text")
    server_url: _ServerUrl = Field(description="the origin of this server, such as https://events.example.com")
    scopes: list[_ScopeName] = Field(["openid", "profile", "email"], description="a list of scopes")
    role_claim: _Text = Field("groups", description=_CLAIM_DESCRIPTION)
    readers: list[_Group] = Field([], description=_ROLES_DESCRIPTION)
    admins: list[_Group] = Field([], description=_ROLES_DESCRIPTION)
    names: list[_Group] = Field([], description=_ROLES_DESCRIPTION)

    @property
    def redirect_uri(self) -> str:
        """The URL to which the provider sends people back."""
        return f"{self.server_url}{CALLBACK_PATH}"

    def kinds(self, roles: Collection[object]) -> frozenset[KeyKind]:
        """Return the permissions of a person with these values of `role_claim`."""
        kinds = {KeyKind.READ: self.readers, KeyKind.ADMIN: self.admins}
        return frozenset(kind for kind, permitted in kinds.items() if any(role in permitted for role in roles))

    def shows_names(self, roles: Collection[object]) -> bool:
        """Return whether a person with these values of `role_claim` sees names. Admins do."""
        return any(role in (*self.names, *self.admins) for role in roles)


class Identity(BaseModel):
    """The content of `identity.toml`."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    issuers: list[Issuer] = Field([], description="a list of tables, [[issuers]]")
    login: Login | None = Field(None, description="a table, [login]")


_MODELS: Mapping[object, type[BaseModel]] = {"issuers": Issuer, "login": Login}


def read_identity(path: Path) -> Identity:
    """Return the content of an `identity.toml`. A missing file has no issuers.

    Raises:
        Misconfigured: the file can't be read, is not TOML, or has an unknown, missing or invalid field; or two issuers
            are the same.
    """
    try:
        identity = Identity.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Identity()
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}. Make it readable for this user.") from None
    except ValidationError as error:
        raise Misconfigured(f"{path.name}: {_error_message(error)} Correct the file.") from None
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError
        raise Misconfigured(f"{path.name}: is not TOML ({error}). Correct the file.") from None
    login = identity.login
    if login is not None and not login.readers and not login.admins:
        raise Misconfigured(f"{path.name}: login: permits no person to log in. Add groups to readers or admins.")
    if login is not None and any(issuer.accepts_id_tokens_of(login) for issuer in identity.issuers):
        raise Misconfigured(
            f'{path.name}: an issuer with token_type "JWT" has the client_id of [login] as its audience, so ID tokens '
            "would be access tokens. Use another audience."
        )
    if login is not None and "openid" not in login.scopes:
        raise Misconfigured(f'{path.name}: login.scopes: lacks "openid", which OpenID Connect requires. Add it.')
    for provider in (*identity.issuers, *([login] if login is not None else [])):
        if provider.issuer.endswith(CONFIGURATION_PATH):
            issuer = provider.issuer.removesuffix(CONFIGURATION_PATH)
            raise Misconfigured(f"{path.name}: {preview(provider.issuer)} is not an issuer. Did you mean {issuer}?")
        if provider.tenants_claim is not None and provider.tenants_claim == provider.deployments_claim:
            raise Misconfigured(f"{path.name}: tenants_claim and deployments_claim are the same claim. Use two claims.")
    names = [issuer.issuer.rstrip("/").lower() for issuer in identity.issuers]
    for name in names:
        if names.count(name) > 1:
            raise Misconfigured(f"{path.name}: the issuer {preview(name)} is given twice. Delete one of the two.")
    return identity


def _error_message(error: ValidationError) -> str:
    """Return a sentence about an unknown field, which may be misspelt, or else about the first invalid field."""
    errors = error.errors(include_url=False)
    detail = next((detail for detail in errors if detail["type"] == "extra_forbidden"), errors[0])
    location = detail["loc"]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")
    model = _MODELS[location[0]] if len(location) > 1 else Identity
    fields = model.model_fields
    if detail["type"] == "extra_forbidden":
        return f"{path}: is not a field. The fields are {', '.join(fields)}."
    if detail["type"] == "missing":
        return f"{path}: is missing."
    description = next((fields[part].description for part in reversed(location) if part in fields), "a table")
    return f"{path}: {preview(detail['input'])} is not {description}."
