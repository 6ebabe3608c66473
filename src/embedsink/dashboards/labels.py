"""Labels that dashboard pages and rendered images share."""

NO_DATA = "No data in this period"
# The text of a tile whose report can't be limited to a department or a group.
NOT_BY_DIRECTORY = "not available by department or group"
# Shown in place of the change from the previous period.
NO_COMPARISON = "not comparable yet"
ZERO_BEFORE = "0 before"
UNCHANGED = "no change"
