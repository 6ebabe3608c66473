"""HTML error pages for browsers, with the status, title and detail of the problem document (RFC 9457)."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from embedsink.http.pages.templating import page_headers, render

PAGE_PATHS = ("/dashboards", "/docs", "/login", "/logout")
ExceptionHandler = Callable[[Request, Any], Awaitable[Response]]


def with_error_page(handler: ExceptionHandler) -> ExceptionHandler:
    """Return an exception handler that sends browsers an HTML page instead of the problem document of `handler`."""

    async def handler_with_error_page(request: Request, error: Exception) -> Response:
        problem_response = await handler(request, error)
        if _is_page_request(request):
            return await _error_page(problem_response)
        return problem_response

    return handler_with_error_page


def _is_page_request(request: Request) -> bool:
    """Return whether a browser opens one of the HTML pages."""
    # A browser that opens a page accepts HTML first. Scripts and other programs accept any type.
    accepts_html_first = request.headers.get("accept", "").startswith("text/html")
    return accepts_html_first and request.url.path.startswith(PAGE_PATHS)


async def _error_page(problem_response: Response) -> Response:
    """Return a problem document as an HTML page, with the same status and headers."""
    problem = orjson.loads(problem_response.body)
    html = await run_in_threadpool(render, "error.html", title=problem["title"], detail=problem["detail"])
    headers = dict(problem_response.headers)
    # HTMLResponse sets the type and the length of the HTML.
    del headers["content-type"], headers["content-length"]
    return HTMLResponse(html, problem_response.status_code, headers=headers | page_headers(frame_origins="none"))
