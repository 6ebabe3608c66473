"""Pages for people, and what fills them."""

from collections.abc import Sequence

from embedsink.auth.key import KeyKind
from embedsink.dashboards.period import PERIODS
from embedsink.http.api import dashboards
from embedsink.http.openapi.failures import ACCESS, ANY_REQUEST, SCOPED
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import SWITCH, arrival_parameters, known_tag, parameter, scope_parameters
from embedsink.http.openapi.parts import Schema, array, object_of
from embedsink.http.pages.login import FORM
from embedsink.http.query_params import EVENT_FILTERS
from embedsink.reasons import Reason
from embedsink.reports.scope import SURFACES

_PAGE: dict[str, Schema] = {"text/html": {"type": "string"}}
_TEXT: Schema = {"type": "string"}
_NO_LOGIN = {303: "To the login, and back from there; or to the same page without parameters that it does not have."}
_OF_A_PAGE = (Reason.PLAIN_HTTP, Reason.WRONG_KIND, Reason.BAD_PARAMETER, Reason.NOT_READY, *ANY_REQUEST)
_OF_A_FORM = (Reason.PLAIN_HTTP, Reason.WRONG_ORIGIN, *ANY_REQUEST)
_NAME = parameter("name", {"type": "string", "examples": ["overview"]}, "Which dashboard.", place="path")

_ARRIVALS = [
    *arrival_parameters(),
    *(one for one in scope_parameters() if one["name"] in EVENT_FILTERS),
]


def operations() -> Sequence[Operation]:
    """The dashboards, their sections, and the login."""
    return [
        Operation("get", "/", "leadIn", "To the dashboards", (307, "To `/dashboards/`.", {})),
        _page("/dashboards", "listDashboards", "Which dashboards there are"),
        _page("/dashboards/", "showDashboards", "Which dashboards there are"),
        _page("/dashboards/inspector", "showInspector", "What arrives, as it arrives", parameters=_ARRIVALS),
        _page("/dashboards/{name}", "showDashboard", "A dashboard", parameters=[_NAME, *_period()]),
        _list(),
        _dashboard(),
        _section(),
        _login_form(),
        _login(),
        Operation("post", "/logout", "logout", "Log out", (303, "To the login.", {}), _OF_A_FORM),
    ]


def _page(path: str, id: str, summary: str, parameters: Sequence[Schema] = ()) -> Operation:
    reasons = (*_OF_A_PAGE, *((Reason.NOT_FOUND,) if _NAME in parameters else ()))
    return Operation(
        "get", path, id, summary, (200, "The page.", _PAGE), reasons, parameters=parameters, others=_NO_LOGIN
    )


def _list() -> Operation:
    listed = array(object_of({"name": _TEXT, "title": _TEXT, "description": _TEXT}))
    return Operation(
        "get",
        dashboards.PATH,
        "readDashboards",
        "Every dashboard with its title",
        (200, "The dashboards.", {"application/json": listed}),
        (*ACCESS, Reason.BAD_PARAMETER),
        (KeyKind.READ, KeyKind.ADMIN),
    )


def _dashboard() -> Operation:
    said = {"type": "object", "required": ["title", "description", "sections"]}
    return Operation(
        "get",
        dashboards.DASHBOARD_ROUTE,
        "readDashboard",
        "What a dashboard says, as in its file: sections of charts, each with its report",
        (200, "The dashboard.", {"application/json": said}),
        (*ACCESS, Reason.BAD_PARAMETER, Reason.NOT_FOUND),
        (KeyKind.READ, KeyKind.ADMIN),
        parameters=[_NAME],
    )


def _section() -> Operation:
    span = array({"type": "integer"}) | {"minItems": 2, "maxItems": 2}
    answer = object_of({"span": span, "interval": _TEXT, "compared": {"type": "boolean"}, "charts": {"type": "object"}})
    return Operation(
        "get",
        dashboards.ROUTE,
        "readSection",
        "What the charts of a section show: rows and numbers by the id of the chart",
        (200, "Times are milliseconds of what the reader's clocks show.", {"application/json": answer}),
        (*SCOPED, Reason.NOT_FOUND, Reason.OVERLOADED, Reason.STORAGE_LOW),
        (KeyKind.READ, KeyKind.ADMIN),
        parameters=[
            _NAME,
            parameter("section", {"type": "string", "examples": ["headline"]}, "Which section.", place="path"),
            *_period(),
            known_tag(),
        ],
        headers={"ETag": "Send it back in If-None-Match."},
        others={304: "Nothing was loaded since."},
    )


def _login_form() -> Operation:
    place = parameter("next", {"type": "string", "examples": ["/dashboards/overview"]}, "Where to go then.")
    reasons = (Reason.PLAIN_HTTP, Reason.BAD_PARAMETER, *ANY_REQUEST)
    return Operation(
        "get", "/login", "showLogin", "The form to log in", (200, "The form.", _PAGE), reasons, parameters=[place]
    )


def _login() -> Operation:
    form = object_of({"key": _TEXT, "next": _TEXT}, optional=("next",))
    refusals = (Reason.MEDIA_TYPE, Reason.BODY_TOO_LARGE, Reason.BODY_TOO_SLOW, Reason.OVERLOADED)
    return Operation(
        "post",
        "/login",
        "login",
        "Log in with a read key: a cookie that stands for it, until it is revoked",
        (303, "To the dashboards, with the cookie.", {}),
        (*_OF_A_FORM, Reason.BAD_PARAMETER, *refusals),
        body={FORM: form},
        headers={"Set-Cookie": "The login; HttpOnly."},
        others={401: "The key is none, or no read key: the form again, which says so."},
    )


def _period() -> Sequence[Schema]:
    zone = "Where days begin at midnight, and by whose clocks times without a zone are (IANA). Default: UTC."
    return [
        parameter("period", {"enum": list(PERIODS)}, "How many days up to now; or give since and until. Default: 7d."),
        parameter("compare", SWITCH, "Whether the period before is told too. Default: on."),
        parameter("surface", {"enum": list(SURFACES)}, "Only this one."),
        parameter("timezone", {"type": "string", "examples": ["Europe/Berlin"]}, zone),
        *scope_parameters(),
    ]
