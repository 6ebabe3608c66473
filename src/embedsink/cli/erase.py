"""`embedsink erase`: erase a person, and print the certificate."""

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from embedsink.audit.entry import Action
from embedsink.cli.options import (
    DATA,
    UNKNOWN_VIEWER,
    Data,
    KeyOption,
    OneDeployment,
    Url,
    UsageError,
    connect,
    examples,
    suggesting_url,
)
from embedsink.cli.output import atomic_write, print_json, print_message, require_writable
from embedsink.cli.recording import recorded
from embedsink.data_folder import DataFolder, require_folder

if TYPE_CHECKING:
    from embedsink.privacy.person import Person

EXAMPLES = examples(
    "embedsink erase --viewer u_42 --dry-run --data data",
    "embedsink erase --viewer u_42 -o certificate.json --data data",
    "EMBEDSINK_KEY=es_admin_… embedsink erase --viewer u_42 --url https://events.example.com",
)
_POLL_S = 0.5
_MEMBERS = ("id", "status")


def erase(
    viewer: Annotated[str, typer.Option(metavar="TEXT", help="The person, as the host page sends the viewer.")],
    tenant: Annotated[str | None, typer.Option(metavar="TEXT", help="Only in this tenant.")] = None,
    deployment: OneDeployment = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print how much an erasure would remove.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the certificate to this file.")
    ] = None,
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Erase a person from all files of a data folder, without confirmation, and print the certificate as JSON.

    What events of other people say about the person stays.

    Later deliveries of the person are rejected for EMBEDSINK_ERASURE_BLOCK_DAYS. Hashed viewers are found too. An
    interrupted erasure continues at the next start of the server.

    Use --data while no server has the folder open. Otherwise use --url and an admin key.
    """
    from embedsink.protocol.strict_json import has_bad_text

    if not viewer:
        raise UsageError("--viewer: is empty. Give the id that the host page sends.")
    if has_bad_text([viewer, tenant]):
        raise UsageError("--viewer, --tenant: a text is not UTF-8. Give the id that the host page sends.")
    if output is not None and not output.parent.is_dir():
        raise UsageError(f"-o {output}: its folder does not exist. Create it first.")
    if tenant == "":
        raise UsageError("--tenant: is empty. Give a tenant, or omit the option.")
    if output is not None:
        require_writable(output)
    if url is not None:
        body = json.dumps({"viewer": viewer, "tenant": tenant, "deployment": deployment}).encode()
        result = _count_on_server(url, key, body) if dry_run else _erase_on_server(url, key, body)
    else:
        from embedsink.privacy.person import Person

        person = Person.within(viewer, tenant=tenant, deployment=deployment)
        with suggesting_url():
            result = asyncio.run(_erase_in_folder(DataFolder(require_folder(data)), person, is_dry_run=dry_run))
    if output is None:
        print_json(result)
    else:
        with atomic_write(output) as temporary:
            temporary.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        print_message(f"{output}: written.")
    _print_warnings(result)


def _print_warnings(result: dict[str, Any]) -> None:
    """Print what a certificate or a dry run says that the operator may have to look at."""
    if not any((result.get("removed") or result.get("wouldRemove") or {}).values()):
        print_message(UNKNOWN_VIEWER)
    if result.get("searchedTextCount") == 0:
        print_message("The files were not searched: a limited request removed no text that only this person has.")
    if result.get("foundIn"):
        paths = ", ".join(found["path"] for found in result["foundIn"])
        print_message(f"Warning: {paths} still has texts of this person. docs/privacy.md says what to do.")
    if result.get("remainingRows"):
        print_message(
            f"Warning: rows of the person: {result['remainingRows']:,}. They arrived later. Erase them again."
        )
    if result.get("remainingRejections"):
        print_message(
            f"Warning: rejections that contain the id, but name no viewer: {result['remainingRejections']:,}. "
            "docs/privacy.md says how to delete them."
        )


def _count_on_server(url: str, key: str | None, body: bytes) -> dict[str, Any]:
    """Return how many rows an erasure would remove from a server."""
    return connect(url, key).post("erasures", "dry-run", required_members=("wouldRemove",), body=body)


def _erase_on_server(url: str, key: str | None, body: bytes) -> dict[str, Any]:
    """Request an erasure from a server, and return the certificate when it is finished."""
    client = connect(url, key)
    erasure = client.post("erasures", required_members=_MEMBERS, body=body)
    print_message(f"Erasure {erasure['id']} is requested. Waiting for its certificate.")
    printed = None
    while erasure["status"] == "pending":
        delay = erasure.get("delay")
        if delay not in (None, printed):
            print_message(f"Delayed: {delay}")
            printed = delay
        time.sleep(_POLL_S)
        erasure = client.get_object("erasures", erasure["id"], required_members=_MEMBERS)
    return erasure


async def _erase_in_folder(folder: DataFolder, person: "Person", *, is_dry_run: bool) -> dict[str, Any]:
    """Erase a person from a data folder, and return the certificate."""
    from embedsink.engine import Engine
    from embedsink.erasure.dry_run import count_removable
    from embedsink.settings import read_settings

    async with Engine(folder, read_settings()) as engine:
        if is_dry_run:
            await engine.erasures.wait_until_loaded()
            with engine.store.reader(person.variables(engine.privacy)) as reader:
                counts = count_removable(reader, damaged=folder.damaged, person=person, privacy=engine.privacy)
                return {"wouldRemove": counts}
        with recorded(folder, Action.ERASURE, target="erasures"):
            erasure = await engine.erasures.request(person, key_id=None)
            finished = await engine.erasures.wait_until_finished(erasure.id)
            return (await engine.erasures.register.with_files(finished)).certificate()
