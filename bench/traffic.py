"""Load for a server: the visits of the demo, without its mistakes, and single views."""

import time
from collections.abc import Iterator
from itertools import count
from random import Random

from embedsink.demo.fixtures import ORIGINS
from embedsink.demo.traffic import Delivery, endless_visits
from embedsink.demo.visits import Envelope, Visit, make_view

# The mean is 23 envelopes.
LENGTH_FACTOR = 2.0
VISIT_SPACING_MS = 1_600


def visits(seed: int, *, length_factor: float = LENGTH_FACTOR) -> Iterator[Visit]:
    """Yield visits endlessly, starting a day ago. Equal seeds give equal visits, except for ids and times."""
    return endless_visits(Random(seed), count(now_ms() - 86_400_000, VISIT_SPACING_MS), length_factor=length_factor)


def delivery_of(visit: Visit) -> Delivery:
    """Return all envelopes of a visit as one delivery."""
    return Delivery(visit.envelopes, visit.deployment.origin, context=visit.context)


def view() -> Envelope:
    """Return a view event with a new id and the current time."""
    return make_view(Random(), now_ms())


def view_in(deployment: int) -> Delivery:
    """Return a delivery with one view of a deployment."""
    # The tenant is set: an event without one makes every report read all `ready` events.
    return Delivery([view()], ORIGINS[0], context={"deployment": deployment, "tenant": "probe"})


def now_ms() -> int:
    """Return the current time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
