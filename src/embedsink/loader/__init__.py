"""Loading of journal segments into the store, and publishing of snapshots."""
