"""The directory: whether it has, or ever had, users or groups."""

from embedsink.store.reader import Reader


def has_directory(reader: Reader) -> bool:
    """Return whether the directory has a user or a group. For a reader who is limited to tenants, it has none."""
    return any(row["has_resources"] for row in reader.dicts("directory_presence"))


def had_directory(reader: Reader) -> bool:
    """Return whether the directory ever had a user or a group. Their names may still be in the bytes of a snapshot."""
    return any(row["had_resources"] for row in reader.dicts("directory_presence"))
