"""Labels that dashboard pages and rendered images share."""

NO_DATA = "No data in this period"
# Shown in place of the change from the previous period.
NO_COMPARISON = "not comparable yet"
ZERO_BEFORE = "0 before"
UNCHANGED = "no change"
