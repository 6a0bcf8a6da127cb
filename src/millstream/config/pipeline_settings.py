"""The section `pipeline`: where telemetry comes from and goes to, and what counts as ill health."""

from dataclasses import dataclass

from millstream.config.kinds import ConfigType
from millstream.config.setting import Spelling, own_setting

_INT = ConfigType.INT
_LONG = ConfigType.LONG
_DOUBLE = ConfigType.DOUBLE
_DURATION = Spelling.DURATION


def _duration(default_ms: int, documentation: str, *, minimum: int = 1) -> int:
    field: int = own_setting(default_ms, documentation, kind=_LONG, spelling=_DURATION, minimum=minimum)
    return field


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    bootstrap: str = own_setting(
        "127.0.0.1:9092",
        "Addresses (host:port, separated by commas) of the cluster that holds the telemetry.",
    )
    topic: str = own_setting("telemetry", "The topic that streamers write and the job reads.")
    declaration: str | None = own_setting(
        None, "A YAML file that says what records look like and which metrics there are; DCGM's when not set."
    )
    dead_letter_topic: str = own_setting(
        "telemetry.dead-letter", "The topic for records that cannot be used, with the reason."
    )
    events_topic: str = own_setting("telemetry.events", "The topic that health events are written to.")
    store: str | None = own_setting(
        None,
        "Where points, rollups and events are kept: parquet:DIRECTORY, influx:http://HOST:8086?db=NAME, or "
        "influx2:http://HOST:8086?org=NAME&bucket=NAME; Parquet in the directory store of data when not set.",
    )
    influx_token: str | None = own_setting(
        None, "The token for an influx2 store; better given in the environment than in a file.",
        sensitive=True,
    )  # fmt: skip
    lake_retention: int = _duration(
        604_800_000,
        "How long an InfluxDB store keeps points in Parquet files beside it, to compute rollups from again.",
    )
    data: str = own_setting(
        "millstream-pipeline", "The directory of the job: checkpoint, marks of windows to compute, status."
    )
    master: str = own_setting("local[*]", "The Spark master, such as local[2] or spark://host:7077.")
    trigger: int = _duration(1_000, "How often the job looks for new records.", minimum=0)
    watermark_delay: int = _duration(
        600_000, "How late data may be before its hour counts as final; what is later is still stored.",
        minimum=0,
    )  # fmt: skip
    rollup_every: int = _duration(5_000, "How often the rollups of changed windows are computed again.")
    starting_offsets: str = own_setting(
        "earliest", "Where the job starts without a checkpoint: earliest, latest, or JSON as Spark takes it."
    )
    max_offsets_per_trigger: int = own_setting(
        200_000, "The most records of one micro-batch: what is read in a few seconds.", kind=_LONG, minimum=1
    )
    max_record_size: int = own_setting(
        512 << 10, "A larger record goes to the dead letters unread.",
        kind=_INT, spelling=Spelling.SIZE, minimum=1,
    )  # fmt: skip
    earliest_time: str = own_setting(
        "2000-01-01T00:00:00Z", "A point with an earlier time (RFC 3339) cannot be right."
    )
    max_ahead: int = _duration(
        86_400_000, "A point with a time this far ahead of its record cannot be right.", minimum=0
    )
    api_host: str = own_setting("127.0.0.1", "The address the query API listens on.")
    api_port: int = own_setting(
        8090, "The port the query API listens on; 0 takes a free one.", kind=_INT, minimum=0, maximum=65535
    )
    api_token: str | None = own_setting(
        None, "The token that callers of the query API must send; better given in the environment than in a file.",
        sensitive=True,
    )  # fmt: skip
    api_allowed_hosts: tuple[str, ...] = own_setting(
        (), "Public names that the query API is reached by, such as mq.example.com, .example.com or * for all.",
        kind=ConfigType.LIST,
    )  # fmt: skip
    temperature_warning: float = own_setting(
        85.0, "A GPU this hot (degrees Celsius) has a thermal excursion.", kind=_DOUBLE
    )
    temperature_critical: float = own_setting(
        92.0, "A thermal excursion that reaches this temperature is critical.", kind=_DOUBLE
    )
    power_limit: float = own_setting(700.0, "What a GPU may draw, in watts.", kind=_DOUBLE, minimum=1)
    power_fraction_warning: float = own_setting(
        1.02, "A GPU that draws this fraction of power_limit has a power excursion.", kind=_DOUBLE, minimum=0
    )
    power_fraction_critical: float = own_setting(
        1.15, "A power excursion that reaches this fraction is critical.", kind=_DOUBLE, minimum=0
    )
    collapse_from: float = own_setting(
        50.0, "Utilisation (percent, mean of the time before) from which a fall can be a collapse.",
        kind=_DOUBLE, minimum=0, maximum=100,
    )  # fmt: skip
    collapse_to: float = own_setting(
        5.0, "Utilisation (percent) at or under which a GPU has collapsed, when its memory is still in use.",
        kind=_DOUBLE, minimum=0, maximum=100,
    )  # fmt: skip
    collapse_after: int = _duration(180_000, "How long utilisation must stay down to be a collapse.")
    memory_leak_window: int = _duration(
        1_800_000, "How long memory must have grown without a pause to be a leak."
    )
    memory_leak_growth: float = own_setting(
        2048.0, "How much (MiB) memory must have grown in that time to be a leak.", kind=_DOUBLE, minimum=1
    )
    silent_after: int = _duration(300_000, "A GPU without a record for this long is silent.")
    silent_critical_after: int = _duration(1_800_000, "A GPU silent for this long is a critical event.")
    xid_burst_count: int = own_setting(
        3, "So many XID errors of a GPU within xid_burst_window are a burst.", kind=_INT, minimum=1
    )
    xid_burst_window: int = _duration(300_000, "The time in which XID errors count together.")

    @property
    def store_url(self) -> str:
        """`store`, or Parquet beside the checkpoint."""
        return self.store or f"parquet:{self.data}/store"
