"""The number of examples of a Hypothesis test, relative to the profile."""

from hypothesis import settings


def examples(factor: float) -> settings:
    """Return settings with the profile's number of examples times a factor."""
    profile = settings.get_profile(settings.get_current_profile_name())
    return settings(profile, max_examples=round(factor * profile.max_examples))
