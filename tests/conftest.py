"""What all tests share."""

from hypothesis import settings

# No deadline: the tests share their machine with others. `pytest --hypothesis-profile ci` looks longer.
settings.register_profile("fast", max_examples=100, deadline=None)
settings.register_profile("ci", max_examples=2_000, deadline=None)
settings.load_profile("fast")
