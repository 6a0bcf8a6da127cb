import pytest

from millstream.config.proxy_settings import ProxySettings, expand_service, proxy_variables


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("msg-queue", ("msg-queue-0.msg-queue:9092", "msg-queue-1.msg-queue:9092")),
        (
            "msg-queue.default.svc.cluster.local",
            (
                "msg-queue-0.msg-queue.default.svc.cluster.local:9092",
                "msg-queue-1.msg-queue.default.svc.cluster.local:9092",
            ),
        ),
        ("a:1", ("a:1",)),
        ("a:1, b , c:3", ("a:1", "b:9092", "c:3")),
    ],
)
def test_a_service_stands_for_its_pods_and_a_list_for_itself(service: str, expected: tuple[str, ...]) -> None:
    assert expand_service(service, 2) == expected
    assert ProxySettings(broker_service=service, broker_count=2).bootstrap_addresses() == expected


def test_the_variables_of_the_first_gateway_are_known() -> None:
    environ = {
        "PORT": "8081", "BROKER_SERVICE": "msg-queue", "BROKER_COUNT": "5", "VIRTUAL_NODES": "200",
        "MAX_PARTITIONS": "24", "HEALTH_INTERVAL_SECONDS": "10", "REQUEST_TIMEOUT_SECONDS": "20",
        "CONNECTION_TIMEOUT_SECONDS": "3", "HOME": "/root", "UNSET": "",
    }  # fmt: skip
    assert proxy_variables(environ) == {
        "http.port": "8081", "proxy.broker_service": "msg-queue", "proxy.broker_count": "5",
        "proxy.virtual_nodes": "200", "proxy.max_partitions": "24", "proxy.health_interval": "10s",
        "proxy.request_timeout": "20s", "proxy.connection_timeout": "3s",
    }  # fmt: skip
