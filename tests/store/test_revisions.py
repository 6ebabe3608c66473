"""Revisions: which deployments have changed, and with which segment."""

from embedsink.store.revisions import Revisions


def test_a_change_of_unknown_deployments_is_a_change_of_every_deployment() -> None:
    revisions = Revisions()
    revisions.record_change([1], number=5)
    before = revisions.of([1]), revisions.of([2]), revisions.of(None)
    revisions.record_change(None, number=6)
    assert set(before).isdisjoint({revisions.of([1]), revisions.of([2]), revisions.of(None)})
    # Live streams continue after this segment.
    assert (revisions.segment_of_last_change([1]), revisions.segment_of_last_change([2])) == (6, 6)
