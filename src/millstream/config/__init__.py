"""Every setting: its name, type, default and meaning, and how file, environment and flags become `Settings`.

Two vocabularies meet here: the sections of the YAML file (`storage.retention_time: 7d`) and Kafka's flat
names (`log.retention.ms`, and `retention.ms` on a topic), which the admin protocol speaks. Input is
text from users; output is typed, checked, immutable values, or a `ConfigError` that says what to write instead.
Nothing here opens a socket or knows the broker; a setting may be listed only once something honours it.
"""

from millstream.config.errors import ConfigError
from millstream.config.topic import TopicConfig

__all__ = ["ConfigError", "TopicConfig"]
