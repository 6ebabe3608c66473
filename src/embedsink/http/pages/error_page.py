"""What is refused on a page, for people: the same status and sentence as for programs, as a page that leads on."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from embedsink.http.pages.templating import page_headers, render

PLACES = ("/dashboards", "/docs", "/login", "/logout")
Answer = Callable[[Request, Any], Awaitable[Response]]


def for_people(answer: Answer) -> Answer:
    """The same handler of exceptions, whose answers browsers get as a page where they asked for one."""

    async def answer_in_words(request: Request, error: Exception) -> Response:
        problem = await answer(request, error)
        return await _page_of(problem) if _is_page(request) else problem

    return answer_in_words


def _is_page(request: Request) -> bool:
    # Programs take anything; browsers that open a page name HTML first.
    return request.url.path.startswith(PLACES) and request.headers.get("accept", "").startswith("text/html")


async def _page_of(problem: Response) -> Response:
    told = orjson.loads(problem.body)
    page = await run_in_threadpool(render, "trouble.html", title=told["title"], detail=told["detail"])
    kept = {name: value for name, value in problem.headers.items() if name not in ("content-type", "content-length")}
    return HTMLResponse(page, problem.status_code, headers=kept | page_headers(frame_origins="none"))
