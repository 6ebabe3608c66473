"""Every setting: one frozen table of names, defaults, units and meanings. README lists it; a test compares.

Each is read from the environment as `EMBEDSINK_<NAME>`, in capitals. Units stand last in the name.
"""

import os
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from embedsink.errors import Misconfigured, nearest, quote
from embedsink.protocol.validation import Rules

MIB = 1_048_576
PREFIX = "EMBEDSINK_"
# What the command line reads beside the settings.
OPTIONS = ("EMBEDSINK_DATA", "EMBEDSINK_KEY")
# What a journal line has around an envelope and its context, at most.
_AROUND_BYTES = 1_024
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most"}


class Settings(BaseModel):
    """The limits and intervals of one server. Frozen: what was read at the start holds until the end."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    service_name: str = Field(
        "svc",
        pattern=r"^[a-z][a-z0-9-]*$",
        description="The vendor's word in identifiers: `svc` stands for `svc-embed` and `svc:event:view`.",
    )

    body_bytes_max: int = Field(MIB, ge=1_024, description="Largest request body, before and after decompression.")
    events_max: int = Field(1_000, ge=1, description="Most envelopes in one request.")
    envelope_bytes_max: int = Field(65_536, ge=256, description="Largest envelope, as compact JSON.")
    context_bytes_max: int = Field(8_192, ge=256, description="Largest context of a delivery, as compact JSON.")
    depth_max: int = Field(32, ge=4, le=200, description="Deepest nesting of arrays and objects in a body.")
    body_timeout_s: float = Field(15.0, gt=0, description="Longest wait for a whole request body.")
    inflight_bytes_max: int = Field(
        64 * MIB, ge=MIB, description="Most bytes of request bodies held at once; beyond it senders get 503."
    )
    connections_max: int = Field(
        4_096, ge=1, description="Most open connections; beyond it the one that waits longest is closed."
    )
    rate_events_per_s: int = Field(
        1_000_000, ge=1, description="Most envelopes per second and ingest key, bursts of two seconds allowed."
    )
    rate_bytes_per_s: int = Field(
        256 * MIB, ge=1, description="Most bytes of bodies per second and key, bursts of two seconds allowed."
    )
    rate_address_bytes_per_s: int = Field(
        128 * MIB,
        ge=1,
        description="The same of an address with one key (IPv6: of a /64). Rejected bodies count more.",
    )
    rate_strangers_per_s: int = Field(
        500,
        ge=1,
        description="Most requests per second without a good key, of an address (IPv6: of a /64), bursts of two "
        "seconds allowed; those beyond are held back for a second, then 429.",
    )
    preflight_max_age_s: int = Field(7_200, ge=0, description="How long a browser may cache a CORS preflight.")

    segment_seal_s: float = Field(1.0, gt=0, description="Age at which a journal segment is sealed and loaded.")
    segment_bytes_max: int = Field(8 * MIB, ge=4_096, description="Size at which a journal segment is sealed.")
    pending_bytes_max: int = Field(
        32 * MIB, ge=MIB, description="Most bytes waiting for the journal's next write; beyond it senders get 503."
    )
    journal_bytes_max: int = Field(
        4_096 * MIB,
        ge=MIB,
        description="Journal that no snapshot covers yet; when loading or snapshots fall this far behind, 503.",
    )
    quarantine_bytes_per_day: int = Field(
        64 * MIB,
        ge=0,
        description="Most bytes that the quarantine keeps of a key and UTC day; beyond it rejections are only counted.",
    )
    quarantine_count_per_day: int = Field(
        100_000,
        ge=0,
        description="Most rejections that it keeps of a key and UTC day; beyond it they are only counted.",
    )
    quarantine_free_bytes_min: int = Field(
        64 * MIB, ge=0, description="Free disk space below which rejections are only counted."
    )
    quarantine_retention_days: int = Field(
        30, ge=0, le=36_500, description="How long the quarantine keeps a rejection, in days; 0 is for ever."
    )
    sync_bytes_max: int = Field(
        8 * MIB,
        ge=4_096,
        description="Most bytes of dbt sync results that are not loaded yet; beyond it senders get 503.",
    )
    free_bytes_min: int = Field(8 * MIB, ge=0, description="Free disk space below which senders get 503.")
    journal_timeout_s: float = Field(4.0, gt=0, description="Longest wait of `/readyz` for a write to be durable.")

    dedup_days: int = Field(7, ge=1, description="How far back an id is remembered, so that a retry counts once.")
    snapshot_interval_s: float = Field(10.0, gt=0, description="Least time between two snapshots for notebooks.")
    store_memory_bytes: int = Field(64 * MIB, ge=64 * MIB, description="DuckDB's memory as a rule.")
    store_memory_bytes_max: int = Field(
        768 * MIB,
        ge=64 * MIB,
        description="The program's memory (RSS) where DuckDB needs more, for reports and rows of huge strings: it may "
        "count half of that itself, if that is more than as a rule, and spills the rest.",
    )
    store_threads: int = Field(1, ge=1, description="DuckDB's threads as a rule.")
    store_threads_max: int = Field(2, ge=1, description="DuckDB's threads while a report is read.")

    report_concurrency_max: int = Field(
        4,
        ge=1,
        description="Reports that run at once; others wait, and keys take turns. "
        "The last quarter is for keys that have less than a quarter.",
    )
    report_waiting_max: int = Field(
        64,
        ge=0,
        description="Reports that may wait; beyond it readers get 503. "
        "The last quarter is for keys that have less than a quarter.",
    )
    report_timeout_s: float = Field(300.0, gt=0, description="Longest work on one report; its reader then gets 503.")
    live_max: int = Field(
        64,
        ge=0,
        description="Live streams, and inspections that wait, at once; beyond it readers get 503. "
        "The last quarter is for keys that have less than a quarter.",
    )
    live_timeout_s: float = Field(3_600.0, gt=0, description="Longest live stream; its reader then connects again.")
    read_timeout_s: float = Field(60.0, gt=0, description="Longest pause of a reader before its download is cut.")
    session_gap_minutes: int = Field(
        30,
        # The rollups that `tenants` reads know no gaps within a quarter of an hour.
        ge=15,
        le=1_440,
        description="Longest time between two events of a session that counts as time spent: longer gaps are left out "
        "of `duration_s` and of the time to first value.",
    )
    login_timeout_s: int = Field(43_200, ge=60, description="How long a login to the dashboards lasts.")
    frame_origins: str = Field(
        "none",
        pattern=r"^(none|https?://[a-z0-9_.:\[\]-]+( https?://[a-z0-9_.:\[\]-]+)*)$",
        description="Origins whose pages may frame the dashboards, with spaces between; or none.",
        json_schema_extra={
            "allowed": "none, or a list of origins such as https://app.example.com, with spaces between"
        },
    )
    keys_reload_s: float = Field(0.5, gt=0, le=1, description="How often `keys.json` is looked at for changes.")
    shutdown_timeout_s: int = Field(10, ge=1, description="Longest wait for open requests after SIGTERM.")

    def check_that_all_fit(self) -> None:
        """Raises Misconfigured where a body may be so large that the journal could never take it in."""
        # Escaped, a byte of a body that can't be read takes six; and each event is written with its context.
        largest = 6 * self.body_bytes_max + self.events_max * (self.context_bytes_max + _AROUND_BYTES)
        if largest > self.pending_bytes_max:
            raise Misconfigured(
                f"{PREFIX}PENDING_BYTES_MAX: {self.pending_bytes_max:,} is less than one body may take, "
                f"{largest:,} = 6 × BODY_BYTES_MAX + EVENTS_MAX × (CONTEXT_BYTES_MAX + {_AROUND_BYTES}). Raise it."
            )

    def variables(self) -> dict[str, object]:
        """Return the session variables that views read beside a scope."""
        return {"session_gap_minutes": self.session_gap_minutes}

    def rules(self) -> Rules:
        """The part that validation holds a body against."""
        return Rules(
            service_name=self.service_name,
            events_max=self.events_max,
            envelope_bytes_max=self.envelope_bytes_max,
            context_bytes_max=self.context_bytes_max,
            depth_max=self.depth_max,
        )


def read_settings() -> Settings:
    """The settings from the environment.

    Raises:
        Misconfigured: names each variable that has a wrong value or that there is none of, and what is allowed.
    """
    wrong = [_unknown(name) for name in sorted(os.environ) if name.startswith(PREFIX) and name not in _known()]
    variables = {name: f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    try:
        settings = Settings.model_validate(
            {name: os.environ[variable] for name, variable in variables.items() if variable in os.environ}
        )
    except ValidationError as error:
        wrong += [_wrong_value(first) for first in error.errors(include_url=False)]
    if wrong:
        raise Misconfigured("\n".join(wrong))
    settings.check_that_all_fit()
    return settings


def _known() -> list[str]:
    return [*(f"{PREFIX}{name.upper()}" for name in Settings.model_fields), *OPTIONS]


def _unknown(name: str) -> str:
    # A limit that was misspelt would hold nobody back, and nobody would know.
    meant = nearest(name.removeprefix(PREFIX), [known.removeprefix(PREFIX) for known in _known()])
    instead = f"Did you mean {PREFIX}{meant}?" if meant else "README lists those that do. Unset it."
    return f"{quote(name)[1:-1]}: does not exist. {instead}"


def _wrong_value(error: Any) -> str:
    name = str(error["loc"][0])
    return f"{PREFIX}{name.upper()}: {quote(error['input'])} is not {_allowed(name)}. Change or unset it."


def _allowed(name: str) -> str:
    """What a setting takes, from its field: `an integer, at least 4 and at most 200`."""
    field = Settings.model_fields[name]
    if isinstance(field.json_schema_extra, dict):
        return str(field.json_schema_extra["allowed"])
    if field.annotation is str:
        return "a word of a to z, 0 to 9 and hyphens that begins with a letter"
    kind = "an integer" if field.annotation is int else "a finite number"
    bounds = [
        f"{words} {getattr(bound, mark):,}"
        for bound in field.metadata
        for mark, words in _BOUNDS.items()
        if hasattr(bound, mark)
    ]
    return f"{kind}, {' and '.join(bounds)}"
