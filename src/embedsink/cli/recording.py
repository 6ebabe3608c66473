"""The entries that commands on a data folder leave in its audit trail. A server records commands with --url itself."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from embedsink.audit.entry import Action, Entry, Outcome, Via, command_line_actor, failure_text
from embedsink.audit.trail import AuditTrail
from embedsink.cli.output import print_message
from embedsink.data_folder import DataFolder
from embedsink.errors import EmbedsinkError

if TYPE_CHECKING:
    from embedsink.auth.key_store import KeyStore


@contextmanager
def recorded(
    folder: DataFolder,
    action: Action,
    *,
    target: str | None = None,
    detail: Mapping[str, Any] | None = None,
    is_required: bool = True,
) -> Iterator[None]:
    """Record an action of this command, then run the block. If the block fails, record that too.

    Args:
        folder: the data folder.
        action: what the command does.
        target: what it is done to.
        detail: further facts.
        is_required: whether to refuse the action if it can't be recorded. Otherwise, print a warning: a user who can
            only read the folder, or whose disk is full, must still be able to copy the data.

    Raises:
        Unavailable: the action can't be recorded, and that is required.
    """
    trail = AuditTrail(folder)
    fields: dict[str, Any] = {"action": action, "actor": command_line_actor(), "via": Via.CLI, "target": target}
    try:
        trail.append([Entry(**fields, detail=detail or {})])
    except EmbedsinkError as error:
        if is_required:
            raise
        print_message(f"Warning: this is not recorded in the audit trail. {error}")
    try:
        yield
    except BaseException as error:
        with suppress(EmbedsinkError):
            trail.append([Entry(**fields, outcome=Outcome.FAILED, detail={"error": failure_text(error)})])
        raise


def recording_key_store(folder: DataFolder) -> "KeyStore":
    """Return the keys of a data folder. Each change is recorded before it takes effect."""
    from embedsink.audit.changes import record_key_changes  # loads pydantic
    from embedsink.auth.key_store import KeyStore

    actor = command_line_actor()
    return KeyStore(folder.keys, on_change=lambda before, after: record_key_changes(folder, before, after, actor=actor))
