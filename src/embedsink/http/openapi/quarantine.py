"""What was rejected, and its replay."""

from collections.abc import Sequence
from typing import Any

from embedsink.auth.keys import KeyKind
from embedsink.http.api import quarantine
from embedsink.http.openapi.failures import JOURNAL, SCOPED
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import limit_parameter, parameter, scope_parameters
from embedsink.http.openapi.parts import array, ref
from embedsink.reasons import Reason


def operations() -> Sequence[Operation]:
    """The list for readers, the replay for whoever runs the server."""
    one = parameter(
        "id", {"type": "string", "format": "uuid"}, "One rejection alone; in the list with all of its `raw`."
    )
    limit = limit_parameter("Most rejections in the answer.", quarantine.LIMIT_DEFAULT, quarantine.LIMIT_MAX)
    return [
        Operation(
            "get",
            "/api/v1/quarantine",
            "listQuarantine",
            "The newest kept rejections in the reader's scope",
            (200, "The rejections.", {"application/json": array({"type": "object"})}),
            (*SCOPED, Reason.OVERLOADED),
            (KeyKind.READ, KeyKind.ADMIN),
            parameters=[*scope_parameters(), limit, one],
        ),
        Operation(
            "delete",
            "/api/v1/quarantine",
            "purgeQuarantine",
            "Take rejections out of the quarantine; their counts stay",
            (200, "How many were taken out.", {"application/json": ref("Purge")}),
            SCOPED,
            (KeyKind.ADMIN,),
            parameters=_purge_parameters(),
        ),
        Operation(
            "post",
            "/api/v1/quarantine/replay",
            "replayQuarantine",
            "Try everything in quarantine again, or one input",
            (200, "How many were accepted, and how many are still wrong.", {"application/json": ref("Replay")}),
            (*SCOPED, *JOURNAL),
            (KeyKind.ADMIN,),
            parameters=[one],
        ),
    ]


def _purge_parameters() -> list[Any]:
    text = {"type": "string"}
    reasons = {"type": "string", "enum": [str(reason) for reason in Reason]}
    return [
        parameter("before", text, "Only what was received before: a time, or an age such as `7d`."),
        parameter("reason", reasons, "Only what was rejected for this reason."),
        parameter("key", text, "Only what came with this key, by its id."),
    ]
