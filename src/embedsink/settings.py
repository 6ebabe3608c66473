"""The settings of a server: names, defaults, units and meanings.

The environment variable of a setting is `EMBEDSINK_<NAME>`, in capitals. The name of a quantity contains its unit.
A test compares the table in docs/configuration.md with this module.
"""

import os
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from embedsink.auth.parsing import parse_deployment_days
from embedsink.errors import Misconfigured, nearest, preview
from embedsink.protocol.delivery import Rules

MIB = 1_048_576
PREFIX = "EMBEDSINK_"
# The environment variables of the command line, which are not settings.
_COMMAND_LINE_VARIABLES = ("EMBEDSINK_DATA", "EMBEDSINK_KEY")
# The value of `archive` without an archive.
NO_ARCHIVE = "none"
# The value of `retention_days_by_deployment` without deployments.
NO_DEPLOYMENTS = "none"
# The maximum size of a journal line without its envelope and its context.
_LINE_OVERHEAD_BYTES = 1_024
# A JSON string takes up to six bytes for a byte of an unreadable body, such as `\u001f`.
_ESCAPED_BYTES_MAX = 6
# The words for pydantic's bounds of a number.
_BOUND_WORDS = {"ge": "at least", "gt": "above", "le": "at most"}


class Settings(BaseModel):
    """The settings of one server. They don't change after startup."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    service_name: str = Field(
        "svc",
        pattern=r"^[a-z][a-z0-9-]*$",
        description="The service name in identifiers: `svc` matches `svc-embed` and `svc:event:view`.",
        json_schema_extra={"allowed": "a name of lowercase letters, digits and hyphens, starting with a letter"},
    )

    body_bytes_max: int = Field(
        MIB, ge=1_024, description="Maximum size of a request body, before and after decompression."
    )
    events_max: int = Field(1_000, ge=1, description="Maximum number of envelopes in one request.")
    envelope_bytes_max: int = Field(65_536, ge=256, description="Maximum size of an envelope, as compact JSON.")
    context_bytes_max: int = Field(8_192, ge=256, description="Maximum size of a delivery's context, as compact JSON.")
    depth_max: int = Field(32, ge=4, le=200, description="Maximum nesting of arrays and objects in a body.")
    body_timeout_s: float = Field(15.0, gt=0, description="Maximum time to receive a whole request body.")
    inflight_bytes_max: int = Field(
        64 * MIB,
        ge=MIB,
        description="Maximum bytes of request bodies in memory at once. Beyond this limit, the server answers 503.",
    )
    connections_max: int = Field(
        4_096,
        ge=1,
        description="Maximum number of open connections. Beyond this limit, the server closes the connection that has "
        "waited longest for a request, for its client to read, or for a delayed response.",
    )
    rate_events_per_s: int = Field(
        1_000_000,
        ge=1,
        description="Maximum number of envelopes per second for each ingest key. Bursts of two seconds are allowed.",
    )
    rate_bytes_per_s: int = Field(
        256 * MIB, ge=1, description="Maximum body bytes per second for each key. Bursts of two seconds are allowed."
    )
    rate_address_bytes_per_s: int = Field(
        128 * MIB,
        ge=1,
        description="Maximum body bytes per second for each key and address (IPv6: each /64). Rejected bodies cost "
        "more than their size.",
    )
    rate_anonymous_per_s: int = Field(
        500,
        ge=1,
        description="Maximum number of requests without a valid key, per second and address (IPv6: per /64). "
        "Bursts of two seconds are allowed. Further requests are delayed for a second, then get 429.",
    )
    preflight_max_age_s: int = Field(7_200, ge=0, description="How long a browser may cache a CORS preflight.")

    segment_seal_s: float = Field(1.0, gt=0, description="Age at which a journal segment is sealed and loaded.")
    segment_bytes_max: int = Field(8 * MIB, ge=4_096, description="Size at which a journal segment is sealed.")
    pending_bytes_max: int = Field(
        32 * MIB,
        ge=MIB,
        description="Maximum bytes that wait for the journal's next write. Beyond this limit, the server answers 503.",
    )
    journal_bytes_max: int = Field(
        4_096 * MIB,
        ge=MIB,
        description="Maximum size of the journal. Beyond this limit, the server answers 503.",
    )
    quarantine_bytes_per_day: int = Field(
        64 * MIB,
        ge=0,
        description="Maximum bytes that the quarantine stores for each key and UTC day. Further rejections are only "
        "counted.",
    )
    quarantine_count_per_day: int = Field(
        100_000,
        ge=0,
        description="Maximum number of rejections that the quarantine stores for each key and UTC day. Further "
        "rejections are only counted.",
    )
    quarantine_free_bytes_min: int = Field(
        64 * MIB, ge=0, description="Free disk space below which rejections are only counted."
    )
    quarantine_retention_days: int = Field(
        30, ge=0, le=36_500, description="How many days the quarantine stores a rejection. 0 means no limit."
    )
    sync_bytes_max: int = Field(
        8 * MIB,
        ge=4_096,
        description="Maximum bytes of dbt sync results that are not loaded yet. Beyond this limit, the server answers "
        "503.",
    )
    free_bytes_min: int = Field(8 * MIB, ge=0, description="Free disk space below which the server answers 503.")
    journal_timeout_s: float = Field(4.0, gt=0, description="How long `/readyz` waits for a durable write.")

    dedup_days: int = Field(
        7, ge=1, description="How many days an event id is remembered, so that a retry counts once."
    )
    retention_days: int = Field(
        0,
        ge=0,
        le=36_500,
        description="How many days events are stored after they were loaded. 0 means no limit. At least "
        "`EMBEDSINK_DEDUP_DAYS`.",
    )
    retention_days_by_deployment: str = Field(
        NO_DEPLOYMENTS,
        description="How many days the events of single deployments are stored: `deployment=days`, separated by "
        "commas, or `none`. 0 means no limit. Each number of days is at least `EMBEDSINK_DEDUP_DAYS`. Other "
        "deployments follow `EMBEDSINK_RETENTION_DAYS`. Needs `EMBEDSINK_DAILY_TOTALS=off`.",
        json_schema_extra={"allowed": "`none` or a list of deployment=days. Example: 12=30,13=0"},
    )
    question_retention_days: int = Field(
        0,
        ge=0,
        le=36_500,
        description="How many days the texts of AI questions are stored. Hashes replace them. 0 means no limit. At "
        "least `EMBEDSINK_DEDUP_DAYS`.",
    )
    extra_retention_days: int = Field(
        0,
        ge=0,
        le=36_500,
        description="How many days fields that are not in the protocol are stored. 0 means no limit. At least "
        "`EMBEDSINK_DEDUP_DAYS`.",
    )
    daily_totals: str = Field(
        "on",
        pattern=r"^(on|off)$",
        description="Whether daily totals remain when events are deleted after `EMBEDSINK_RETENTION_DAYS`: `on` or "
        "`off`. `off` also deletes earlier totals.",
        json_schema_extra={"allowed": "`on` or `off`"},
    )
    erasure_block_days: int = Field(
        30,
        ge=0,
        le=3_650,
        description="How many days deliveries of an erased person are rejected. 0 means only until the erasure is "
        "finished.",
    )
    erase_on_scim_delete: str = Field(
        "off",
        pattern=r"^(on|off)$",
        description="Whether the deletion of a user over SCIM erases the person: `on` or `off`.",
        json_schema_extra={"allowed": "`on` or `off`"},
    )
    archive: str = Field(
        NO_ARCHIVE,
        pattern=r"^(none|/.+|s3://[a-zA-Z0-9][a-zA-Z0-9._-]*(/.*)?)$",
        description="A folder or an `s3://` URL to which events are archived before the retention deletes them, or "
        "`none`.",
        json_schema_extra={
            "allowed": "`none`, an absolute path or a URL. Examples: /var/archive s3://bucket/embedsink"
        },
    )
    snapshot_interval_s: float = Field(10.0, gt=0, description="Minimum time between two snapshots for notebooks.")
    store_memory_bytes: int = Field(64 * MIB, ge=64 * MIB, description="DuckDB's memory limit in normal operation.")
    store_memory_bytes_max: int = Field(
        768 * MIB,
        ge=64 * MIB,
        description="Maximum memory (RSS) of the server while it runs a report or loads huge strings. During that "
        "time, DuckDB's limit is half of this value, or `EMBEDSINK_STORE_MEMORY_BYTES` if that is larger. DuckDB "
        "spills the rest to disk.",
    )
    store_threads: int = Field(1, ge=1, description="DuckDB's threads in normal operation.")
    store_threads_max: int = Field(2, ge=1, description="DuckDB's threads while a report runs.")

    report_concurrency_max: int = Field(
        4,
        ge=1,
        description="Maximum number of reports that run at once. Further reports wait, and keys take turns. A quarter "
        "of the slots is reserved for keys that use less than a quarter of all slots.",
    )
    report_waiting_max: int = Field(
        64,
        ge=0,
        description="Maximum number of reports that wait. Beyond this limit, readers get 503. A quarter of the slots "
        "is reserved for keys that use less than a quarter of all slots.",
    )
    report_timeout_s: float = Field(
        300.0, gt=0, description="Maximum run time of a report. After that, its reader gets 503."
    )
    live_max: int = Field(
        64,
        ge=0,
        description="Maximum number of live streams and waiting inspections at once. Beyond this limit, readers get "
        "503. A quarter of the slots is reserved for keys that use less than a quarter of all slots.",
    )
    live_timeout_s: float = Field(
        3_600.0, gt=0, description="Maximum duration of a live stream. After that, its reader connects again."
    )
    read_timeout_s: float = Field(
        60.0, gt=0, description="How long a reader may pause a download before the server closes the connection."
    )
    session_gap_minutes: int = Field(
        30,
        # `tenants` reads rollups, which do not record gaps within a quarter of an hour.
        ge=15,
        le=1_440,
        description="Longest gap between two events of a session that counts as time spent. `duration_s` and the "
        "time to first value exclude longer gaps.",
    )
    viewer_attribute: str = Field(
        "externalId",
        pattern=r"^(externalId|userName|emails|employeeNumber)$",
        description="The attribute of the directory's users that equals the viewer of their events. Of several "
        "`emails`, the primary one.",
        json_schema_extra={"allowed": "one of `externalId`, `userName`, `emails` and `employeeNumber`"},
    )
    directory_bytes_max: int = Field(
        64 * MIB,
        ge=4_096,
        description="Maximum size of the directory in memory, as compact JSON. Beyond this limit, the server refuses "
        "larger users and groups.",
    )
    login_timeout_s: int = Field(43_200, ge=60, description="How long a login to the dashboards lasts.")
    login_client_secret: SecretStr | None = Field(
        None,
        min_length=1,
        description="The secret of this server at the identity provider of `[login]` in `identity.toml`.",
        json_schema_extra={"allowed": "a text, or not set for a public client"},
    )
    login_idle_timeout_s: int = Field(
        7_200, ge=60, description="How long a login lasts without use. An open live dashboard counts as use."
    )
    frame_origins: str = Field(
        "none",
        pattern=r"^(none|https?://[a-z0-9_.:\[\]-]+( https?://[a-z0-9_.:\[\]-]+)*)$",
        description="Origins whose pages may frame the dashboards, separated by spaces, or `none`.",
        json_schema_extra={
            "allowed": "`none` or a list of origins separated by spaces. "
            "Example: https://app.example.com https://intranet.example.com"
        },
    )
    proxy_addresses: str = Field(
        "any",
        pattern=r"^(any|[0-9a-f.:/]+( [0-9a-f.:/]+)*)$",
        description="Addresses or networks of the proxies that `--behind-proxy` trusts, separated by spaces, or `any`.",
        json_schema_extra={
            "allowed": "`any` or a list of addresses and networks separated by spaces. Example: 10.0.0.5 fd00::/8"
        },
    )
    hsts_max_age_s: int = Field(
        31_536_000,
        ge=0,
        description="How long browsers use only HTTPS for this host after a visit (HSTS); 0 to forget it.",
    )
    keys_reload_s: float = Field(0.5, gt=0, le=1, description="How often the server checks `keys.json` for changes.")
    audit_days: int = Field(
        400, ge=0, le=36_500, description="How many days the audit trail stores an entry. 0 means no limit."
    )
    shutdown_timeout_s: int = Field(10, ge=1, description="How long the server waits for open requests after SIGTERM.")

    def check_pending_bytes(self) -> None:
        """Raise Misconfigured if the lines of the largest allowed body exceed `pending_bytes_max`.

        The journal would refuse such a body at each retry.
        """
        # The journal's line of each event repeats the context, and adds members such as `received_at`.
        overhead_bytes_max = self.events_max * (self.context_bytes_max + _LINE_OVERHEAD_BYTES)
        # Rejected content is stored as a JSON string, whose escapes take up to six bytes for a byte.
        content_bytes_max = _ESCAPED_BYTES_MAX * self.body_bytes_max
        lines_bytes_max = content_bytes_max + overhead_bytes_max
        if lines_bytes_max > self.pending_bytes_max:
            raise Misconfigured(
                f"{PREFIX}PENDING_BYTES_MAX: {self.pending_bytes_max:,} is too small: one body can take "
                f"{lines_bytes_max:,} bytes ({_ESCAPED_BYTES_MAX} × BODY_BYTES_MAX + EVENTS_MAX × "
                f"(CONTEXT_BYTES_MAX + {_LINE_OVERHEAD_BYTES})). Raise it to at least {lines_bytes_max:,}."
            )

    def check_retention_days(self) -> None:
        """Raise Misconfigured if events are changed while their ids are remembered.

        A retry would count twice, or would have other content than the stored event.
        """
        days_by_name = {
            _variable_name(name): getattr(self, name)
            for name in ("retention_days", "question_retention_days", "extra_retention_days")
        }
        for deployment, days in self.deployment_retention_days().items():
            days_by_name[f"{_variable_name('retention_days_by_deployment')}: deployment {deployment}"] = days
        for name, days in days_by_name.items():
            if 0 < days < self.dedup_days:
                raise Misconfigured(
                    f"{name}: {days} is less than {PREFIX}DEDUP_DAYS ({self.dedup_days}), so an event that is sent "
                    f"again would not be recognized. Raise it to at least {self.dedup_days}, or set {PREFIX}DEDUP_DAYS="
                    f"{days}. Browsers resend events for up to six days, and a copy that arrives later counts twice."
                )

    def check_daily_totals(self) -> None:
        """Raise Misconfigured if daily totals are on although deployments have days of their own.

        The totals of a day need the events of all deployments at the same time.
        """
        if self.daily_totals == "on" and self.deployment_retention_days():
            raise Misconfigured(
                f"{PREFIX}RETENTION_DAYS_BY_DEPLOYMENT: needs {PREFIX}DAILY_TOTALS=off, because the totals of a day "
                "need the events of all deployments at the same time. Set it, or omit the days of single deployments."
            )

    def deployment_retention_days(self) -> dict[int, int]:
        """Return the retention in days of the deployments that have one of their own; 0 for no limit.

        Raises:
            Misconfigured: `retention_days_by_deployment` has an invalid item.
        """
        text = self.retention_days_by_deployment
        name = _variable_name("retention_days_by_deployment")
        return {} if text == NO_DEPLOYMENTS else parse_deployment_days(text, name=name)

    def check_archive(self) -> None:
        """Raise Misconfigured if there is an archive without a retention: nothing would ever be archived."""
        if (
            self.archive != NO_ARCHIVE
            and not self.retention_days
            and not any(self.deployment_retention_days().values())
        ):
            raise Misconfigured(
                f"{PREFIX}ARCHIVE: needs {PREFIX}RETENTION_DAYS, because events are archived before they are deleted. "
                "Set it, or run `embedsink export --archive`."
            )

    def variables(self) -> dict[str, object]:
        """Return the settings that SQL views read as variables of the DuckDB session."""
        return {"session_gap_minutes": self.session_gap_minutes}

    def without_secrets(self) -> dict[str, object]:
        """Return the value of each setting by the name of its variable; of a secret, only whether it is set."""
        values = self.model_dump()
        return {
            _variable_name(name): "set" if isinstance(value, SecretStr) else value for name, value in values.items()
        }

    def rules(self) -> Rules:
        """Return the service name and the limits that validation applies to a body."""
        return Rules(
            service_name=self.service_name,
            events_max=self.events_max,
            envelope_bytes_max=self.envelope_bytes_max,
            context_bytes_max=self.context_bytes_max,
            depth_max=self.depth_max,
        )


def read_settings() -> Settings:
    """Return the settings from the environment.

    Raises:
        Misconfigured: a variable is unknown or has an invalid value. The message lists all problems.
    """
    problems = _find_unknown_variables()
    values = {
        name: os.environ[_variable_name(name)] for name in Settings.model_fields if _variable_name(name) in os.environ
    }
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        problems += [_invalid_value_message(field_error) for field_error in error.errors(include_url=False)]
    if problems:
        raise Misconfigured("\n".join(problems))
    settings.check_pending_bytes()
    settings.check_retention_days()
    settings.check_daily_totals()
    settings.check_archive()
    return settings


def _variable_name(name: str) -> str:
    """Return the name of the environment variable for a setting."""
    return f"{PREFIX}{name.upper()}"


def _find_unknown_variables() -> list[str]:
    """Return a message for each unknown `EMBEDSINK_…` variable: a misspelt setting would have no effect."""
    known = [*map(_variable_name, Settings.model_fields), *_COMMAND_LINE_VARIABLES]
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    return [_unknown_variable_message(name, known) for name in unknown]


def _unknown_variable_message(name: str, known: list[str]) -> str:
    """Return the message about an unknown variable, with the nearest known variable if one is similar."""
    nearest_name = nearest(name.removeprefix(PREFIX), [known_name.removeprefix(PREFIX) for known_name in known])
    if nearest_name is None:
        advice = "Unset the variable. docs/configuration.md lists all settings."
    else:
        advice = f"Did you mean {PREFIX}{nearest_name}?"
    quoted_name = preview(name)
    # `preview` escapes and shortens the name. [1:-1] removes its quotation marks.
    return f"{quoted_name[1:-1]}: does not exist. {advice}"


def _invalid_value_message(error: Any) -> str:
    """Return the message about the invalid value of a variable, from an error of pydantic."""
    name = str(error["loc"][0])  # the setting
    return f"{_variable_name(name)}: {preview(error['input'])} is not {_allowed_values(name)}. Change or unset it."


def _allowed_values(name: str) -> str:
    """Return the allowed values of a setting, such as `an integer that is at least 4 and at most 200`."""
    field = Settings.model_fields[name]
    if isinstance(field.json_schema_extra, dict):
        return str(field.json_schema_extra["allowed"])
    kind = "an integer" if field.annotation is int else "a finite number"
    # Pydantic stores each bound as an object with one attribute, such as `Ge(ge=4)`.
    bounds = [
        f"{words} {getattr(constraint, attribute):,}"
        for constraint in field.metadata
        for attribute, words in _BOUND_WORDS.items()
        if hasattr(constraint, attribute)
    ]
    return f"{kind} that is {' and '.join(bounds)}"
