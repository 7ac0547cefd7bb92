"""The database: products, event logs, keys, snapshots and their verification."""
