"""HTML error pages for browsers, with the status and sentence of the problem document."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from embedsink.http.pages.templating import page_headers, render

PAGE_PATHS = ("/dashboards", "/docs", "/login", "/logout")
Answer = Callable[[Request, Any], Awaitable[Response]]


def for_people(answer: Answer) -> Answer:
    """Return an exception handler that answers browsers with an HTML page instead of a problem document."""

    async def answer_as_page(request: Request, error: Exception) -> Response:
        problem = await answer(request, error)
        return await _page_of(problem) if _is_page(request) else problem

    return answer_as_page


def _is_page(request: Request) -> bool:
    # Browsers that open a page list HTML first; programs accept any type.
    return request.url.path.startswith(PAGE_PATHS) and request.headers.get("accept", "").startswith("text/html")


async def _page_of(response: Response) -> Response:
    problem = orjson.loads(response.body)
    page = await run_in_threadpool(render, "error.html", title=problem["title"], detail=problem["detail"])
    headers = {
        name: value for name, value in response.headers.items() if name not in ("content-type", "content-length")
    }
    return HTMLResponse(page, response.status_code, headers=headers | page_headers(frame_origins="none"))
