"""CORS for error responses of the paths that pages of other origins use (Fetch standard, section 3.2)."""

from starlette.requests import Request
from starlette.responses import Response

from embedsink.auth.credentials import Credentials
from embedsink.engine import Engine
from embedsink.errors import Refused, preview
from embedsink.reasons import Reason

INGEST_PATH = "/api/v1/events"
ADAPTER_PREFIX = "/vendors/"


def cors_headers(request: Request) -> dict[str, str]:
    """Return the CORS headers of an error response: for an ingest request with `Origin`, and for adapters.

    If neither a live ingest key nor an issuer allows the origin, return only `Vary`. Without
    `Access-Control-Allow-Origin`, the page can't read the response. Adapters are public, so any page may read why one
    is missing.
    """
    origin = request.headers.get("origin")
    credentials = request.scope.get("state", {}).get("credentials")  # None before the application has started
    if request.scope["path"].startswith(ADAPTER_PREFIX):
        return {"Access-Control-Allow-Origin": "*"}
    if origin is None or credentials is None or request.scope["path"] != INGEST_PATH:
        return {}
    if not is_origin_allowed(origin, credentials):
        return {"Vary": "Origin"}
    return allow_origin_headers(origin)


def is_origin_allowed(origin: str, credentials: Credentials) -> bool:
    """Return whether pages of this origin may use at least one live ingest key, or access tokens."""
    allowed_origins = credentials.origins()  # None allows any origin.
    return allowed_origins is None or origin in allowed_origins


def allow_origin_headers(origin: str) -> dict[str, str]:
    """Return the headers with which a page of this origin can read the response."""
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": "Retry-After, WWW-Authenticate, X-Request-Id",
        "Vary": "Origin",
    }


async def answer_preflight(request: Request) -> Response:
    """Answer `OPTIONS` with 204. A preflight has no credential, so allow the origins of all of them.

    Raises:
        Refused: the origin is missing, or no live ingest key and no issuer allows it (`wrong_origin`).
    """
    engine: Engine = request.state.engine
    origin = request.headers.get("origin")
    if origin is None:
        raise Refused(
            Reason.WRONG_ORIGIN,
            "origin: is missing. A preflight contains the origin of its page. Programs can POST without a preflight.",
        )
    if not is_origin_allowed(origin, request.state.credentials):
        raise Refused(
            Reason.WRONG_ORIGIN,
            f"origin: {preview(origin)} is not an origin of any ingest key. Create a key with --origin.",
        )
    return Response(
        status_code=204,
        headers={
            **allow_origin_headers(origin),
            "Access-Control-Allow-Methods": "POST",
            "Access-Control-Allow-Headers": "Authorization, Content-Type, Content-Encoding",
            "Access-Control-Max-Age": str(engine.settings.preflight_max_age_s),
        },
    )
