"""The reasons for errors that several operations share."""

from embedsink.reasons import Reason

# The server checks the query of every request, on all paths.
ANY_REQUEST_REASONS = (Reason.INTERNAL_ERROR, Reason.BAD_PARAMETER)
# For operations that need a key.
ACCESS_REASONS = (
    Reason.TWO_CREDENTIALS,
    Reason.NO_CREDENTIAL,
    Reason.BAD_CREDENTIAL,
    Reason.WRONG_ORIGIN,
    Reason.WRONG_KIND,
    Reason.PLAIN_HTTP,
    Reason.RATE_LIMITED,
    Reason.NOT_READY,
    *ANY_REQUEST_REASONS,
)
# For operations that are restricted to the key's scope.
SCOPE_REASONS = (*ACCESS_REASONS, Reason.OUT_OF_SCOPE)
# For operations that write a report completely before they send it. They need a free slot, and space on the disk.
SPOOL_REASONS = (*SCOPE_REASONS, Reason.OVERLOADED, Reason.STORAGE_LOW)
# For operations that leave an entry in the audit trail, or are refused.
AUDIT_REASONS = (Reason.STORAGE_LOW, Reason.STORAGE_FAILED)
# For operations that read a body, except the errors of its fields.
BODY_REASONS = (
    Reason.NOT_JSON,
    Reason.NOT_UTF8,
    Reason.TOO_DEEP,
    Reason.DUPLICATE_KEY,
    Reason.NOT_FINITE,
    Reason.BODY_TOO_SLOW,
    Reason.BODY_TOO_LARGE,
    Reason.MEDIA_TYPE,
    Reason.ENCODING,
)
# For operations that wait for the journal.
JOURNAL_REASONS = (Reason.OVERLOADED, Reason.STORAGE_LOW, Reason.STORAGE_FAILED)
