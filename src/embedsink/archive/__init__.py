"""The archive: events as monthly Parquet files in a folder or in object storage, with manifests."""
