"""`GET /problems/{reason}`: the explanation to which the `type` of a problem refers."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from embedsink.errors import Refused, preview
from embedsink.http.openapi.errors import ANY_REQUEST_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parameters import parameter
from embedsink.http.openapi.parts import reason_schema, ref
from embedsink.http.problems import advice_on
from embedsink.reasons import Reason
from embedsink.settings import Settings


async def explain_problem(request: Request) -> Response:
    """Answer with the meaning of a reason, and the advice to the client."""
    name = request.path_params["reason"]
    reasons = {reason.value: reason for reason in Reason}
    if name not in reasons:
        raise Refused(Reason.NOT_FOUND, f"reason: {preview(name)} does not exist. docs/wire.md lists all reasons.")
    reason = reasons[name]
    return JSONResponse(
        {"reason": reason, "title": reason.sentence, "status": reason.status, "advice": advice_on(reason)}
    )


ROUTES = [Route("/problems/{reason}", explain_problem)]


def operations(_: Settings) -> list[Operation]:
    """Describe the route."""
    return [
        Operation(
            method="get",
            path="/problems/{reason}",
            id="explainProblem",
            summary="Read the meaning of a problem type",
            success=Success(200, "The meaning of the reason.", {"application/json": ref("Explanation")}),
            error_reasons=(Reason.NOT_FOUND, *ANY_REQUEST_REASONS),
            parameters=[parameter("reason", reason_schema(Reason), location="path")],
        )
    ]
