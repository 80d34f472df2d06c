"""How bytes travel: one Kafka producer, one consumer."""
