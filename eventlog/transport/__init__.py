"""The transports of bytes: an HTTP client, a Kafka producer and a Kafka consumer."""
