"""The gateway's metrics, with the names that dashboards of the first gateway use."""

import msgspec

from millstream.observability.metrics import Counter, Family, Gauge, Histogram, Registry


class GatewayMetrics(msgspec.Struct, frozen=True):
    requests: Family[Counter]
    duration: Family[Histogram]
    broker_requests: Family[Counter]
    broker_health: Family[Gauge]
    breaker_open: Family[Gauge]
    health_checks: Family[Counter]
    produced: Counter
    delivered: Counter
    settled: Family[Counter]
    shed: Family[Counter]
    in_flight_bytes: Gauge
    buffered_bytes: Gauge
    streams: Gauge

    @classmethod
    def create(cls, registry: Registry) -> "GatewayMetrics":
        return cls(
            requests=registry.counters(
                "proxy_requests_total", "Requests, by call and status.", "endpoint", "status"
            ),
            duration=registry.histograms(
                "proxy_request_duration_seconds", "From a whole request to its answer, by call.", "endpoint"
            ),
            broker_requests=registry.counters(
                "proxy_broker_requests_total", "Requests sent to brokers.", "broker", "status"
            ),
            broker_health=registry.gauges("proxy_broker_health", "1 where a broker is healthy.", "broker"),
            breaker_open=registry.gauges(
                "proxy_breaker_open", "1 while a broker's circuit breaker is open, 0.5 half-open.", "broker"
            ),
            health_checks=registry.counters(
                "proxy_health_checks_total", "Checks of brokers.", "broker", "status"
            ),
            produced=registry.counter("proxy_messages_produced_total", "Messages that brokers acknowledged."),
            delivered=registry.counter("proxy_messages_delivered_total", "Messages handed to consumers."),
            settled=registry.counters(
                "proxy_messages_settled_total",
                "Acknowledged, returned and rejected messages.",
                "kind",
                "status",
            ),
            shed=registry.counters("proxy_shed_total", "Requests refused because of a limit.", "reason"),
            in_flight_bytes=registry.gauge("proxy_in_flight_bytes", "Messages on their way to brokers."),
            buffered_bytes=registry.gauge("proxy_buffered_bytes", "Messages that wait for a leader."),
            streams=registry.gauge("proxy_streams", "Streams of /consume open now."),
        )
