"""CockroachDB changefeeds in cloud storage."""
