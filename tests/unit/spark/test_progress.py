from millstream.spark import lag_of


def test_lag_is_what_the_cluster_has_beyond_what_was_read() -> None:
    progress = {
        "sources": [
            {"endOffset": '{"t": {"0": 10, "1": 5}}', "latestOffset": '{"t": {"0": 15, "1": 5, "2": 3}}'},
            {"endOffset": {"u": {"0": 1}}, "latestOffset": {"u": {"0": 2}}},
        ]
    }
    lag = lag_of(progress)
    assert lag.by_partition == {("t", 0): 5, ("t", 1): 0, ("t", 2): 3, ("u", 0): 1}
    assert lag.total == 9
    assert lag.max_offsets_behind_latest == 5
    assert lag.min_offsets_behind_latest == 0
    assert lag.avg_offsets_behind_latest == 9 / 4


def test_a_source_that_reports_nothing_has_no_lag() -> None:
    lag = lag_of(
        {"sources": [{"endOffset": None, "latestOffset": None}, {"endOffset": "1", "latestOffset": "-"}]}
    )
    assert lag.total == 0
    assert lag.avg_offsets_behind_latest == 0
