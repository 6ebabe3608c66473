"""The dry run of an erasure: how much it would remove."""

from pathlib import Path

from embedsink.data_folder import advice_on
from embedsink.erasure.damaged_segments import PersonLines, count_lines
from embedsink.erasure.person_rows import count_rows
from embedsink.errors import Unavailable
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy
from embedsink.reasons import Reason
from embedsink.store.reader import Reader


def count_removable(reader: Reader, *, damaged: Path, person: Person, privacy: Privacy) -> dict[str, int]:
    """Return how many rows and damaged lines an erasure would remove, by kind.

    Args:
        reader: a reader with `Person.variables`.
        damaged: the folder `damaged/`.
        person: the person.
        privacy: the privacy rules.

    Raises:
        Unavailable: a file in `damaged/` can't be read.
    """
    try:
        line_count = count_lines(damaged, PersonLines.of(person, privacy))
    except OSError as error:
        detail = f"damaged/: {error.strerror}. {advice_on(error)}"
        raise Unavailable(Reason.STORAGE_FAILED, detail, retry_after_s=10) from error
    return {**count_rows(reader), "damagedLines": line_count}
