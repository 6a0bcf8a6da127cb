from prometheus_client.parser import text_string_to_metric_families

from millstream.observability.exposition import render
from millstream.observability.group_metrics import GroupSample, GroupSamples, OffsetSample, watch_groups
from millstream.observability.metrics import Registry


class Groups:
    def samples(self, max_groups: int, max_offsets: int) -> GroupSamples:
        groups = [GroupSample("g", "Stable", 2), GroupSample("old", "Empty", 0)]
        offsets = [
            OffsetSample("g", "t", 0, 70, 100),
            OffsetSample("g", "t", 1, 9, 5),
            OffsetSample("g", "t", 2, 3, None),
        ]
        return GroupSamples(groups, offsets, 3)


def test_members_offsets_and_lag_are_shown_and_lag_is_never_negative() -> None:
    registry = Registry()
    watch_groups(registry, Groups())
    families = text_string_to_metric_families(render(registry.snapshot()).decode())
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("millstream_group")
    }
    assert found == {
        ("millstream_group_members", "g", "Stable"): 2,
        ("millstream_group_members", "old", "Empty"): 0,
        ("millstream_group_offset", "g", "0", "t"): 70,
        ("millstream_group_offset", "g", "1", "t"): 9,
        ("millstream_group_lag", "g", "0", "t"): 30,
        ("millstream_group_lag", "g", "1", "t"): 0,
        ("millstream_group_offset", "g", "2", "t"): 3,
        ("millstream_group_lag_unknown", "g", "2", "t"): 1,
        ("millstream_group_samples_left_out",): 3,
    }
