"""What pages of any origin load: modules, and their types."""

from collections.abc import Sequence

from embedsink.browser.modules import browser_files
from embedsink.http.openapi.failures import ANY_REQUEST
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import known_tag, parameter
from embedsink.http.openapi.parts import Schema
from embedsink.reasons import Reason


def operations() -> Sequence[Operation]:
    """The forwarder and the actions, as JavaScript and as types."""
    return [
        _operation("/{module}.js", "readModule", "A module for pages: the forwarder, or the actions", ".js"),
        _operation("/{module}.d.ts", "readTypes", "The types of a module, for TypeScript", ".d.ts"),
    ]


def _operation(path: str, id_: str, summary: str, suffix: str) -> Operation:
    files = [file for name, file in browser_files().items() if name.endswith(suffix)]
    names = [file.name.removesuffix(suffix) for file in files]
    module = {"type": "string", "pattern": rf"^({'|'.join(names)})(\.[0-9a-f]{{16}})?$"}
    meaning = f"{' or '.join(names)}, alone or with a version: {files[0].versioned_name.removesuffix(suffix)}."
    content: dict[str, Schema] = {file.media_type: {} for file in files}
    return Operation(
        "get",
        path,
        id_,
        summary,
        (
            200,
            "The file. Under its plain name it may change; with a version it never does. "
            "A version that this server does not know is answered with the current file.",
            content,
        ),
        (Reason.NOT_FOUND, *ANY_REQUEST),
        parameters=[parameter("module", module, meaning, place="path"), known_tag()],
        others={304: "It has not changed."},
        headers={"ETag": "Weak; send it back in If-None-Match."},
    )
