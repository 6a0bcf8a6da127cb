"""Real Kafka clients behind one narrow interface, so that a test can have each of them do the same."""
