"""What pages and pictures say in the same words."""

NOTHING = "Nothing in this period"
# Why no change is told against the period before.
NOT_YET = "not comparable yet"
NONE_BEFORE = "none before"
AS_BEFORE = "as before"
