"""The names of topics that hold a cluster's own state."""

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
MQTT_SESSIONS_TOPIC = "__mqtt_sessions"
MQTT_RETAINED_TOPIC = "__mqtt_retained"

INTERNAL_TOPICS = frozenset(
    {OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC, MQTT_SESSIONS_TOPIC, MQTT_RETAINED_TOPIC}
)
