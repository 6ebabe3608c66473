"""The metrics of `/metrics`. Each scrape collects them from the counters of the engine."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from embedsink.engine import Engine
from embedsink.reasons import Reason


def metrics_text(engine: Engine) -> bytes:
    """Return all metrics in the Prometheus text format."""
    # With `auto_describe`, the registration would collect all metrics once more.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_EngineCollector(engine))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _EngineCollector:
    """A Prometheus collector of the metrics of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        yield from self._ingest_metrics()
        yield from self._journal_metrics()
        yield from self._loader_metrics()
        yield from self._live_metrics()
        yield from self._deletion_metrics()

    def _ingest_metrics(self) -> Iterator[Metric]:
        counters = self._engine.counters
        envelopes = CounterMetricFamily(
            "embedsink_envelopes", "Envelopes made durable, by outcome.", labels=["outcome"]
        )
        for outcome in ("accepted", "quarantined"):
            envelopes.add_metric([outcome], counters[outcome])
        yield envelopes
        yield CounterMetricFamily(
            "embedsink_rejections_not_stored",
            "Rejections counted and not stored in the quarantine.",
            counters["not_stored"],
        )
        yield CounterMetricFamily("embedsink_syncs", "Results of dbt syncs made durable.", counters["syncs"])
        refused = CounterMetricFamily("embedsink_refused_requests", "Requests refused, by reason.", labels=["reason"])
        for reason in Reason:
            if reason.status is not None:  # The other reasons reject an envelope, not a request.
                refused.add_metric([str(reason)], counters[f"refused.{reason}"])
        yield refused
        yield CounterMetricFamily(
            "embedsink_unreadable_requests",
            "Requests that are not valid HTTP, or that exceed a limit of the server.",
            counters["not_http"],
        )

    def _journal_metrics(self) -> Iterator[Metric]:
        journal = self._engine.journal
        yield CounterMetricFamily(
            "embedsink_journal_groups", "Groups of journal lines made durable.", journal.counters.group_count
        )
        yield CounterMetricFamily(
            "embedsink_journal_bytes", "Bytes of journal lines made durable.", journal.counters.byte_count
        )
        yield CounterMetricFamily(
            "embedsink_journal_sync_seconds", "Time spent in fdatasync.", journal.counters.sync_duration_s
        )
        yield GaugeMetricFamily(
            "embedsink_journal_segments",
            "Sealed segments in the journal: the newest one, and those that are missing from at least one of the last "
            "two snapshots.",
            journal.capacity.segment_count,
        )
        yield GaugeMetricFamily(
            "embedsink_journal_segment_bytes",
            "Bytes of the sealed segments in the journal.",
            journal.capacity.byte_count,
        )
        yield GaugeMetricFamily(
            "embedsink_journal_available_bytes",
            "Bytes by which the journal can grow before the server answers 503.",
            journal.capacity.available_bytes,
        )

    def _live_metrics(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "embedsink_live_listeners",
            "Live streams and waiting inspections.",
            self._engine.load_notifier.listener_count,
        )

    def _deletion_metrics(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "embedsink_erasure_delay_seconds",
            "Age of the oldest erasure that is not finished; 0 without one.",
            self._engine.erasures.register.delay_s(),
        )
        yield GaugeMetricFamily(
            "embedsink_retention_overdue_seconds",
            "Time since the last complete run of the retention, or the start, beyond two hours; 0 without a retention.",
            self._engine.loader.retention.overdue_s,
        )

    def _loader_metrics(self) -> Iterator[Metric]:
        status = self._engine.loader.status
        loaded = CounterMetricFamily("embedsink_loaded_envelopes", "Envelopes loaded, by outcome.", labels=["outcome"])
        loaded.add_metric(["accepted"], status.accepted_count)
        loaded.add_metric(["duplicate"], status.duplicate_count)
        loaded.add_metric(["quarantined"], status.quarantined_count)
        yield loaded
        yield CounterMetricFamily("embedsink_load_seconds", "Time spent loading segments.", status.load_duration_s)
        yield CounterMetricFamily("embedsink_snapshots", "Snapshots published.", status.snapshot_count)
        yield CounterMetricFamily("embedsink_snapshot_seconds", "Time spent on snapshots.", status.snapshot_duration_s)
        yield GaugeMetricFamily(
            "embedsink_snapshot_timestamp_seconds", "When the last snapshot was published.", status.snapshot_at or 0
        )
        yield CounterMetricFamily("embedsink_store_reopened", "Times the store was reopened.", status.reopened_count)
        yield GaugeMetricFamily(
            "embedsink_damaged_files",
            "Damaged or lost files that need the operator's attention.",
            len(status.damaged),
        )
