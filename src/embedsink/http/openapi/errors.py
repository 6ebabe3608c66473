"""The reasons for errors that several operations share."""

from embedsink.reasons import Reason

# The server checks the query of every request, on all paths.
ANY_REQUEST = (Reason.INTERNAL_ERROR, Reason.BAD_PARAMETER)
ACCESS = (
    Reason.TWO_CREDENTIALS,
    Reason.NO_CREDENTIAL,
    Reason.BAD_CREDENTIAL,
    Reason.WRONG_ORIGIN,
    Reason.WRONG_KIND,
    Reason.PLAIN_HTTP,
    Reason.RATE_LIMITED,
    Reason.NOT_READY,
    *ANY_REQUEST,
)
SCOPED = (*ACCESS, Reason.BAD_PARAMETER, Reason.OUT_OF_SCOPE)
# A report is written completely before it is sent: it needs a free slot, and space on the disk.
SPOOLED = (*SCOPED, Reason.OVERLOADED, Reason.STORAGE_LOW)
BODY = (
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
JOURNAL = (Reason.OVERLOADED, Reason.STORAGE_LOW, Reason.STORAGE_FAILED)
