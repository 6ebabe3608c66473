"""Access tokens of a real issuer: which are accepted, what they permit, and what happens when the issuer fails."""

import asyncio
import logging
import math
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, KeyParameters, OctKey, OKPKey, RSAKey
from joserfc.jwk import Key as JwkKey

from embedsink.auth import access_tokens, signing_keys
from embedsink.auth.access_tokens import AccessTokens
from embedsink.auth.identity import read_identity
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.signed_tokens import LEEWAY_S
from embedsink.errors import Refused, Unavailable
from embedsink.reasons import Reason
from tests.support.issuer import AUDIENCE, JWKS_PATH, Issuer, encode_part, running_issuer, send
from tests.support.servers import wait_until

ISSUER = "https://login.example.com/"


@pytest.fixture(scope="module")
def shared_issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture
def issuer(shared_issuer: Issuer) -> Iterator[Issuer]:
    """Return the issuer, which works and has one key."""
    first_key = shared_issuer.signing_key
    yield shared_issuer
    shared_issuer.signing_key = first_key
    shared_issuer.publish(first_key)
    shared_issuer.respond = shared_issuer.send_jwks
    shared_issuer.paths.clear()


def with_tokens(
    issuer: Issuer,
    tmp_path: Path,
    use: Callable[[AccessTokens], Coroutine[Any, Any, None]],
    *,
    clock: Callable[[], float] = time.time,
    **fields: Any,
) -> None:
    """Call a function with the tokens of an issuer, in an event loop, while the signing keys are fetched."""
    (tmp_path / "identity.toml").write_text(issuer.toml(**fields))

    async def run() -> None:
        tokens = AccessTokens(read_identity(tmp_path / "identity.toml").issuers, clock)
        running = asyncio.create_task(tokens.run())
        try:
            await use(tokens)
        finally:
            running.cancel()
            await asyncio.wait({running})

    asyncio.run(run())


def find(issuer: Issuer, tmp_path: Path, token: str, **fields: Any) -> Key:
    """Return the key of a token."""
    keys: list[Key | None] = []

    async def use(tokens: AccessTokens) -> None:
        keys.append(await tokens.find_when_ready(token))

    with_tokens(issuer, tmp_path, use, **fields)
    [key] = keys
    assert key is not None
    return key


def assert_refused(issuer: Issuer, tmp_path: Path, token: str, message: str, **fields: Any) -> None:
    with pytest.raises(Refused, match=r"^authorization: the access token ") as error:
        find(issuer, tmp_path, token, **fields)
    assert error.value.reason is Reason.BAD_CREDENTIAL
    assert message in str(error.value)


def test_a_valid_token_becomes_a_key(issuer: Issuer, tmp_path: Path) -> None:
    expires_at = int(time.time()) + 600
    token = issuer.token(scope="openid embedsink:read embedsink:sync", exp=expires_at)
    key = find(issuer, tmp_path, token, origins=["https://app.example.com"])
    assert key.kinds == {KeyKind.READ, KeyKind.SYNC}
    assert (key.label, key.scope.deployments) == ("user-1", None)
    assert key.origins == frozenset({"https://app.example.com"})
    assert key.expires_at == expires_at + LEEWAY_S
    assert key.key_id.startswith("t_")
    assert token not in repr(key)


def test_tokens_of_a_subject_and_a_scope_have_the_same_id(issuer: Issuer, tmp_path: Path) -> None:
    all_claims: list[dict[str, Any]] = [
        {"t": "acme"},
        {"t": ["acme"], "jti": "2", "scope": ""},
        {"t": "acme", "sub": "user-2"},
        {"t": "globex"},
        {"t": "*"},
    ]
    ids = [find(issuer, tmp_path, issuer.token(**claims), tenants_claim="t").key_id for claims in all_claims]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4


@pytest.mark.parametrize("path", ["well-known", "jwks_url"])
def test_the_keys_are_at_the_url_of_the_file_or_of_the_configuration(issuer: Issuer, tmp_path: Path, path: str) -> None:
    fields = {"jwks_url": f"{issuer.url}/keys"} if path == "jwks_url" else {}
    find(issuer, tmp_path, issuer.token(), **fields)
    assert issuer.paths == (["/keys"] if fields else ["/.well-known/openid-configuration", JWKS_PATH])


@pytest.mark.parametrize("audience", [AUDIENCE, ["https://other.example", AUDIENCE]], ids=["text", "list"])
@pytest.mark.parametrize("token_type", ["at+jwt", "application/at+jwt", "AT+JWT"])
def test_audiences_and_types_in_all_their_forms_are_accepted(
    issuer: Issuer, tmp_path: Path, audience: Any, token_type: str
) -> None:
    assert find(issuer, tmp_path, issuer.token(aud=audience, header={"typ": token_type})).kinds


def test_the_type_jwt_is_accepted_only_if_the_file_says_so(issuer: Issuer, tmp_path: Path) -> None:
    token = issuer.token(header={"typ": "JWT"})
    assert find(issuer, tmp_path, token, token_type="JWT").kinds
    assert_refused(issuer, tmp_path, token, "is not of the type (typ) at+jwt")
    assert_refused(issuer, tmp_path, issuer.token(), "is not of the type (typ) JWT", token_type="JWT")


@dataclass(frozen=True)
class Offset:
    """A time relative to now. The tests may run long after the parameters are created."""

    s: int


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"iss": "https://evil.example"}, "has an issuer (iss) that this server does not trust"),
        ({"iss": None}, "has an issuer (iss) that this server does not trust"),
        ({"iss": ["https://evil.example"]}, "has an issuer (iss) that this server does not trust"),
        ({"aud": "https://other.example"}, "aud"),
        ({"aud": f"{AUDIENCE}/"}, "aud"),
        ({"aud": []}, "aud"),
        ({"aud": {AUDIENCE: True}}, "aud"),
        ({"aud": None}, "aud"),
        ({"exp": 1_700_000_000}, "has expired"),
        ({"exp": Offset(-LEEWAY_S - 1)}, "has expired"),
        ({"exp": -(10**400)}, "has expired"),
        ({"exp": None}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": "9999999999"}, "exp"),
        ({"exp": math.nan}, "exp"),
        ({"exp": math.inf}, "exp"),
        ({"nbf": Offset(600)}, "not yet valid"),
        ({"nbf": "soon"}, "nbf"),
        ({"iat": Offset(600)}, "issued in the future"),
        ({"iat": None}, "iat"),
        ({"iat": "now"}, "iat"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": 7}, "sub"),
        ({"cnf": {"jkt": "abc"}}, "is bound to a key (cnf)"),
    ],
)
def test_a_token_with_wrong_claims_is_refused(
    issuer: Issuer, tmp_path: Path, claims: dict[str, Any], message: str
) -> None:
    now = int(time.time())
    claims = {name: now + value.s if isinstance(value, Offset) else value for name, value in claims.items()}
    assert_refused(issuer, tmp_path, issuer.token(**claims), message)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"typ": None}, "is not of the type (typ) at+jwt"),
        ({"typ": "JWT"}, "is not of the type (typ) at+jwt"),
        ({"typ": "dpop+jwt"}, "is not of the type (typ) at+jwt"),
        ({"typ": 7}, "is not of the type (typ) at+jwt"),
        ({"alg": "RS512"}, "not allowed"),
        ({"kid": 7}, "is not valid"),
        ({"crit": ["exp"]}, "has critical headers"),
        ({"crit": 7}, "has critical headers"),
        ({"crit": ["b64"], "b64": False}, "is not a JWT"),
    ],
)
def test_a_token_with_a_wrong_header_is_refused(
    issuer: Issuer, tmp_path: Path, header: dict[str, Any], message: str
) -> None:
    assert_refused(issuer, tmp_path, issuer.token(header=header), message)


def test_unknown_headers_are_ignored(issuer: Issuer, tmp_path: Path) -> None:
    assert find(issuer, tmp_path, issuer.token(header={"nonce": "7", "x5t": "abc"})).kinds


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", ""])
def test_an_unsigned_token_is_refused(issuer: Issuer, tmp_path: Path, algorithm: str) -> None:
    header, claims = encode_part({"alg": algorithm, "typ": "at+jwt", "kid": "first"}), encode_part(issuer.claims())
    assert_refused(issuer, tmp_path, f"{header}.{claims}.AA", "is not valid")
    with pytest.raises(AssertionError):  # Without a signature, the text is no JWT, and no API key.
        find(issuer, tmp_path, f"{header}.{claims}.")


def test_a_public_key_is_no_secret(issuer: Issuer, tmp_path: Path) -> None:
    assert_refused(issuer, tmp_path, issuer.token_with_public_key_as_secret(), "not allowed")
    # A symmetric key in the JWK Set is ignored.
    secret = OctKey.import_key("secret" * 8, {"kid": "secret"})
    issuer.jwks.append(dict(secret.as_dict(private=True)))
    assert_refused(issuer, tmp_path, issuer.token(key=secret), "not allowed")


def test_a_key_in_the_token_is_not_trusted(issuer: Issuer, tmp_path: Path) -> None:
    issuer.rotate("second")
    own = ECKey.generate_key("P-256", {"kid": "second"})
    own_jwk = dict(own.as_dict(private=False))
    headers: list[dict[str, Any]] = [{}, {"jwk": own_jwk}, {"jku": f"{issuer.url}/evil"}, {"x5u": f"{issuer.url}/evil"}]
    for header in headers:
        assert_refused(issuer, tmp_path, issuer.token(key=own, header=header), "has a wrong signature")
    assert set(issuer.paths) <= {"/.well-known/openid-configuration", JWKS_PATH}


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_changed_part_is_refused(issuer: Issuer, tmp_path: Path, index: int) -> None:
    parts = issuer.token().split(".")
    parts[index] = issuer.token(sub="other", header={"x": 1}, key=RSAKey.generate_key(2048, {"kid": "first"})).split(
        "."
    )[index]
    assert_refused(issuer, tmp_path, ".".join(parts), "has a wrong signature")


@pytest.mark.parametrize("token", [f"{encode_part({'alg': 'RS256'})}.W10.AA", "eyJ9.eyJ9.AA"])
def test_text_in_the_form_of_a_jwt_is_refused(issuer: Issuer, tmp_path: Path, token: str) -> None:
    assert_refused(issuer, tmp_path, token, "")


@pytest.mark.parametrize(
    "token", ["", "a.b", "a.b.c", "e30.e30.e30", "a.b.c.d", "es_read_x", "a b.c.d", "é.b.c", "A" * 20_000 + ".b.c"]
)
def test_other_text_is_no_access_token(issuer: Issuer, tmp_path: Path, token: str) -> None:
    async def use(tokens: AccessTokens) -> None:
        assert tokens.find(token) is None

    with_tokens(issuer, tmp_path, use)


@pytest.mark.parametrize(
    ("scope", "kinds"),
    [
        ("embedsink:read\u00a0embedsink:admin", set()),
        ("embedsink:ingest", {"ingest"}),
        ("embedsink:read embedsink:admin", {"read", "admin"}),
        (["embedsink:sync", 7, None], {"sync"}),
        ("embedsink:everything read embedsink:readx", set()),
        ("", set()),
        (None, set()),
        ({"embedsink:read": True}, set()),
        (7, set()),
    ],
)
def test_scopes_are_permissions(issuer: Issuer, tmp_path: Path, scope: Any, kinds: set[str]) -> None:
    key = find(issuer, tmp_path, issuer.token(scope=scope))
    assert key.kinds == kinds
    assert key.shows_names == ("admin" in kinds)
    assert find(issuer, tmp_path, issuer.token(scp=scope, scope=None), scope_claim="scp").kinds == kinds


def test_a_scope_shows_names(issuer: Issuer, tmp_path: Path) -> None:
    for scope in ("embedsink:names embedsink:read", ["embedsink:read", "embedsink:names"]):
        key = find(issuer, tmp_path, issuer.token(scope=scope))
        assert key.kinds == {KeyKind.READ}
        assert key.shows_names
    assert not find(issuer, tmp_path, issuer.token(scope="embedsink:read embedsink:namesx names")).shows_names


@pytest.mark.parametrize(
    ("value", "deployments"),
    [(7, {7}), ("7", {7}), ([7, "8"], {7, 8}), ("*", None), (["*"], None), (-3, {-3})],
)
def test_a_claim_limits_a_token_to_deployments(
    issuer: Issuer, tmp_path: Path, value: Any, deployments: set[int] | None
) -> None:
    assert find(issuer, tmp_path, issuer.token(d=value), deployments_claim="d").scope.deployments == deployments


@pytest.mark.parametrize(
    "value", [None, [], "", "seven", [7, None], [7, "*"], True, [True], 7.0, {"7": 1}, 2**60, "07"]
)
def test_a_token_with_a_wrong_claim_of_deployments_is_refused(issuer: Issuer, tmp_path: Path, value: Any) -> None:
    assert_refused(
        issuer, tmp_path, issuer.token(d=value), 'no list of deployments in its claim "d"', deployments_claim="d"
    )


@pytest.mark.parametrize(
    ("value", "tenants"), [("acme", {"acme"}), (["acme", "globex"], {"acme", "globex"}), ("*", None), (["*"], None)]
)
def test_a_claim_limits_a_token_to_tenants(
    issuer: Issuer, tmp_path: Path, value: Any, tenants: set[str] | None
) -> None:
    scope = find(issuer, tmp_path, issuer.token(t=value), tenants_claim="t").scope
    assert (scope.deployments, scope.tenants) == (None, tenants)


@pytest.mark.parametrize(
    "value",
    [
        *(None, [], "", [""], 7, ["acme", 7], {"acme": 1}, True),
        *(" ", "a\0b", "a\nb", "x" * 201, ["acme", "*"], "\ud800", ["acme", "\udfff"]),
    ],
)
def test_a_token_with_a_wrong_claim_of_tenants_is_refused(issuer: Issuer, tmp_path: Path, value: Any) -> None:
    assert_refused(issuer, tmp_path, issuer.token(t=value), 'no list of tenants in its claim "t"', tenants_claim="t")


def test_a_token_is_valid_until_its_expiry_plus_the_leeway(issuer: Issuer, tmp_path: Path) -> None:
    now = [time.time()]
    token = issuer.token(exp=int(now[0]) + 10, nbf=int(now[0]) + LEEWAY_S - 1)

    async def use(tokens: AccessTokens) -> None:
        key = await tokens.find_when_ready(token)
        assert key is not None
        now[0] += 10 + LEEWAY_S - 2
        assert tokens.find(token) == key
        assert tokens.is_live(key)
        now[0] += 3
        assert not tokens.is_live(key)
        with pytest.raises(Refused, match="has expired"):
            tokens.find(token)

    with_tokens(issuer, tmp_path, use, clock=lambda: now[0])


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (RSAKey.generate_key(2048, {"kid": "k"}), "PS256"),
        (ECKey.generate_key("P-384", {"kid": "k"}), "ES384"),
        (OKPKey.generate_key("Ed25519", {"kid": "k"}), "Ed25519"),
    ],
    ids=["PS256", "ES384", "Ed25519"],
)
def test_an_algorithm_of_the_file_is_accepted(issuer: Issuer, tmp_path: Path, key: Any, algorithm: str) -> None:
    issuer.signing_key = key
    issuer.publish(key)
    token = issuer.token(header={"alg": algorithm})
    assert find(issuer, tmp_path, token, algorithms=[algorithm]).kinds
    assert_refused(issuer, tmp_path, token, "not allowed", algorithms=["RS256"])


def test_an_issuer_cannot_sign_for_another(issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_keys, "COOL_DOWN_S", 0.05)
    with running_issuer() as other:
        (tmp_path / "identity.toml").write_text(issuer.toml() + other.toml())
        issuers = read_identity(tmp_path / "identity.toml").issuers

        async def run() -> None:
            tokens = AccessTokens(issuers, time.time)
            running = asyncio.create_task(tokens.run())
            for own in (issuer, other):
                assert await tokens.find_when_ready(own.token())
            forged = issuer.token(key=other.signing_key)
            with pytest.raises(Refused, match="has a wrong signature"):  # Both keys have the same id.
                tokens.find(forged)
            other.rotate("second")
            await find_eventually(tokens, other.token())
            with pytest.raises(Refused, match="has a key"):
                tokens.find(issuer.token(key=other.signing_key, iat=int(time.time()) - 600))
            running.cancel()
            await asyncio.wait({running})

        asyncio.run(run())


def test_one_key_may_have_several_ids_and_algorithms(issuer: Issuer, tmp_path: Path) -> None:
    jwk = issuer.jwks[0]
    issuer.jwks = [jwk | {"kid": "old", "alg": "PS256"}, jwk | {"kid": "old", "alg": "RS256"}, jwk | {"kid": "new"}]
    for kid in ("old", "new"):
        assert find(issuer, tmp_path, issuer.token(header={"kid": kid})).label == "user-1"


def test_several_keys_may_have_one_id(issuer: Issuer, tmp_path: Path) -> None:
    kid: KeyParameters = {"kid": "shared"}
    keys: list[JwkKey] = [RSAKey.generate_key(2048, kid) for _ in range(2)]
    keys.append(ECKey.generate_key("P-256", kid))
    issuer.publish(*keys)
    for key in keys:
        assert find(issuer, tmp_path, issuer.token(key=key)).label == "user-1"
    assert_refused(issuer, tmp_path, issuer.token(key=RSAKey.generate_key(2048, kid)), "has a wrong signature")


async def find_eventually(tokens: AccessTokens, token: str) -> Key:
    """Return the key of a token when it is accepted, at most 5 s later."""
    async with asyncio.timeout(5):
        while True:
            try:
                key = await tokens.find_when_ready(token)
            except Unavailable:
                await asyncio.sleep(0.01)
            else:
                assert key is not None
                return key


def test_a_new_key_is_fetched_and_a_removed_key_is_refused(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing_keys, "COOL_DOWN_S", 0.0)
    old_token = issuer.token()
    now = [time.time()]

    async def use(tokens: AccessTokens) -> None:
        old_key = await tokens.find_when_ready(old_token)
        assert old_key is not None
        issuer.rotate("second")
        new_token = issuer.token()
        with pytest.raises(Unavailable, match="must be fetched from its issuer first"):
            tokens.find(new_token)
        await find_eventually(tokens, new_token)
        assert tokens.find(old_token) == old_key
        assert tokens.is_live(old_key)
        issuer.rotate("third", keep=False)
        await find_eventually(tokens, issuer.token())
        assert not tokens.is_live(old_key)
        with pytest.raises(Unavailable):  # Perhaps its key was published after the last fetch.
            tokens.find(old_token)
        now[0] += LEEWAY_S + 10
        issuer.rotate("fourth")
        await find_eventually(tokens, issuer.token(iat=int(now[0])))
        with pytest.raises(Refused, match=r"has a key \(kid\) that its issuer does not have"):
            tokens.find(old_token)

    with_tokens(issuer, tmp_path, use, clock=lambda: now[0])


def test_unknown_keys_cause_one_fetch_per_cool_down(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing_keys, "COOL_DOWN_S", 0.5)

    async def use(tokens: AccessTokens) -> None:
        assert await tokens.find_when_ready(issuer.token())
        for number in range(50):
            with pytest.raises(Unavailable) as error:
                tokens.find(issuer.token(header={"kid": f"invented-{number}"}))
            assert error.value.retry_after_s == 1
            with pytest.raises(Refused, match="has a key"):  # An old token does not have a new key.
                tokens.find(issuer.token(header={"kid": "old"}, iat=int(time.time()) - 2 * LEEWAY_S))
        assert issuer.paths.count(JWKS_PATH) == 1
        await asyncio.sleep(1.2)
        assert issuer.paths.count(JWKS_PATH) == 2

    with_tokens(issuer, tmp_path, use)


def test_a_request_during_the_cool_down_does_not_wait(issuer: Issuer, tmp_path: Path) -> None:
    async def use(tokens: AccessTokens) -> None:
        assert await tokens.find_when_ready(issuer.token())
        issuer.rotate("second")
        began_at = time.monotonic()
        with pytest.raises(Unavailable) as error:
            await tokens.find_when_ready(issuer.token())
        assert time.monotonic() - began_at < 2
        assert 20 < error.value.retry_after_s <= signing_keys.COOL_DOWN_S

    with_tokens(issuer, tmp_path, use)


def test_a_token_without_a_key_id_has_the_only_key(issuer: Issuer, tmp_path: Path) -> None:
    token = issuer.token(header={"kid": None})
    assert find(issuer, tmp_path, token).kinds
    issuer.rotate("second")
    assert_refused(issuer, tmp_path, token, "has no key id (kid)")


def test_the_keys_are_fetched_regularly(issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_keys, "FETCH_INTERVAL_S", 0.05)
    monkeypatch.setattr(signing_keys, "COOL_DOWN_S", 0.0)

    async def use(tokens: AccessTokens) -> None:
        key = await tokens.find_when_ready(issuer.token())
        assert key is not None
        issuer.rotate("second", keep=False)
        async with asyncio.timeout(5):
            await asyncio.to_thread(wait_until, lambda: not tokens.is_live(key), description="the key is removed")

    with_tokens(issuer, tmp_path, use)


def redirect(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", "/jwks")
    handler.end_headers()


def never_answer(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(1.0)


def send_slowly(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    trickle(handler, b" ")


def send_headers_slowly(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    trickle(handler, b"X: 1\r\n")


def trickle(handler: BaseHTTPRequestHandler, part: bytes) -> None:
    for _ in range(20):
        handler.wfile.write(part)
        time.sleep(0.05)


def send_garbage(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x15\x03\x01")


def close(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


FAILURES: dict[str, tuple[Callable[[BaseHTTPRequestHandler], None], str]] = {
    "status 500": (lambda handler: handler.send_error(500), "has the status 500 instead of 200"),
    "redirect": (redirect, "has the status 302 instead of 200"),
    "no answer": (never_answer, "did not respond within 0.3 s"),
    "slow": (send_slowly, "did not respond within 0.3 s"),
    "slow headers": (send_headers_slowly, "did not respond within 0.3 s"),
    "not HTTP": (send_garbage, "can't be fetched"),
    "closed": (close, "can't be fetched"),
    "huge": (lambda handler: send(handler, b" " * 300_000), "is larger than 262,144 bytes"),
    "not JSON": (lambda handler: send(handler, b"<html>"), "is not JSON"),
    "deep": (lambda handler: send(handler, b"[" * 200_000), "is not JSON"),
    "array": (lambda handler: send(handler, []), "is not a JSON object"),
    "not a set": (lambda handler: send(handler, {"keys": {}}), "is not a JWK Set"),
    "empty": (lambda handler: send(handler, {"keys": []}), "has no public key for signatures"),
    "unusable": (
        lambda handler: send(
            handler,
            {
                "keys": [
                    7,
                    {"kty": "oct", "k": "c2VjcmV0"},
                    {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
                    {"kty": "EC", "crv": "P-256"},
                    {"kty": "EC", "crv": "P-256", "x": 7, "y": 7},
                    dict(ECKey.generate_key("P-256", {"use": "enc"}).as_dict(private=False)),
                ]
            },
        ),
        "has no public key for signatures",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_an_issuer_that_fails_at_the_start_makes_tokens_unavailable_until_it_works(
    issuer: Issuer,
    tmp_path: Path,
    failure: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(signing_keys, "FETCH_S_MAX", 0.3)
    monkeypatch.setattr(signing_keys, "COOL_DOWN_S", 0.05)
    issuer.respond, message = FAILURES[failure]

    async def use(tokens: AccessTokens) -> None:
        with pytest.raises(Unavailable) as error:
            await tokens.find_when_ready(issuer.token())
        assert error.value.reason is Reason.NOT_READY
        await asyncio.sleep(0.1)  # In the meantime, the failure is logged.
        issuer.respond = issuer.send_jwks
        await find_eventually(tokens, issuer.token())

    with_tokens(issuer, tmp_path, use, jwks_url=f"{issuer.url}{JWKS_PATH}")
    record = next(record for record in caplog.records if record.getMessage() == "issuer_unreachable")
    assert message in vars(record)["detail"]
    assert record.levelno == logging.WARNING


def test_an_issuer_that_fails_later_changes_nothing(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing_keys, "COOL_DOWN_S", 0.0)

    async def use(tokens: AccessTokens) -> None:
        token = issuer.token()
        assert await tokens.find_when_ready(token)
        issuer.respond = issuer.fail
        with pytest.raises(Unavailable):
            await tokens.find_when_ready(issuer.token(header={"kid": "other"}))
        assert tokens.find(token)
        assert tokens.find(issuer.token(jti="2"))

    with_tokens(issuer, tmp_path, use)


def test_a_bug_in_a_fetch_does_not_end_the_fetches(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(signing_keys, "COOL_DOWN_S", 0.0)
    results = iter([0])
    import_signing_key = signing_keys._import_signing_key
    monkeypatch.setattr(
        signing_keys, "_import_signing_key", lambda jwk: 1 // 0 if next(results, None) == 0 else import_signing_key(jwk)
    )

    async def use(tokens: AccessTokens) -> None:
        await find_eventually(tokens, issuer.token())

    with_tokens(issuer, tmp_path, use)
    assert [record.getMessage() for record in caplog.records].count("bug") == 1


def test_a_configuration_of_another_issuer_is_not_used(
    issuer: Issuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for configuration, message in (
        ({"issuer": "https://evil.example", "jwks_uri": f"{issuer.url}{JWKS_PATH}"}, "Both must be equal."),
        ({"issuer": issuer.url}, "has no jwks_uri"),
        ({"issuer": issuer.url, "jwks_uri": "http://10.0.0.1/jwks"}, "has no jwks_uri with HTTPS"),
        ({"issuer": issuer.url, "jwks_uri": "file:///etc/passwd"}, "has no jwks_uri with HTTPS"),
        ({"issuer": issuer.url, "jwks_uri": None}, "has no jwks_uri with HTTPS"),
        ({"issuer": issuer.url, "jwks_uri": "https://a@b.example"}, "has no jwks_uri with HTTPS"),
    ):
        issuer.respond = lambda handler, configuration=configuration: send(handler, configuration)  # type: ignore[misc]
        with pytest.raises(Unavailable):
            find(issuer, tmp_path, issuer.token())
        assert message in vars(caplog.records[-1])["detail"]
    assert JWKS_PATH not in issuer.paths


def test_the_number_of_remembered_tokens_is_limited(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_tokens, "REMEMBERED_MAX", 3)

    async def use(tokens: AccessTokens) -> None:
        keys = [await tokens.find_when_ready(issuer.token(jti=str(number))) for number in range(5)]
        assert len(tokens._remembered) == 3
        monkeypatch.setattr(access_tokens, "REMEMBERED_CHARACTERS_MAX", tokens._remembered_characters)
        longest = issuer.token(jti="x" * 500)
        assert tokens.find(longest) is not None
        assert 1 <= len(tokens._remembered) < 3
        assert tokens._remembered_characters == sum(one.length for one in tokens._remembered.values())
        # A forgotten token is still valid.
        assert [key is not None and tokens.is_live(key) for key in keys] == [True] * 5

    with_tokens(issuer, tmp_path, use)
