"""What a node says about itself on /metrics."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from support.node import NodeProcess


def metric(node: NodeProcess, name: str, **labels: str) -> float:
    """The value of one sample; zero when nothing was counted yet."""
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=60) as reply:
        text = reply.read().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and sample.labels.items() >= labels.items():
                return float(sample.value)
    return 0.0
