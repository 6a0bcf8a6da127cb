"""Who gets a message: one copy for a session, whatever of its filters match."""

from millstream.mqtt.subscriptions import Granted, Match, Subscription, SubscriptionIndex


def test_overlapping_filters_are_one_copy_with_the_highest_qos_and_all_identifiers():
    index = SubscriptionIndex()
    index.add("s", Subscription("a/#", 1, identifier=3))
    index.add("s", Subscription("a/+", 2, retain_as_published=True))
    index.add("s", Subscription("a/b", 0, identifier=5))
    (match,) = index.find("a/b")
    assert match.subscriber == "s"
    assert (match.granted.qos, match.granted.retain_as_published) == (2, True)
    assert sorted(match.granted.identifiers) == [3, 5]


def test_each_filter_has_its_own_copy_where_that_is_wanted():
    index = SubscriptionIndex(copies=True)
    index.add("s", Subscription("a/#", 1, no_local=True, identifier=3))
    index.add("s", Subscription("a/+", 2, retain_as_published=True))
    index.add("s", Subscription("a/b", 0, identifier=5))
    (match,) = index.find("a/b")
    others = Granted(1, False, (3,)), Granted(0, False, (5,))
    assert match.granted == Granted(2, True, (), others)
    assert match.to_publisher == Granted(2, True, (), others[1:])


def test_no_local_counts_filter_by_filter():
    index = SubscriptionIndex()
    index.add("s", Subscription("a", 1, no_local=True))
    assert index.find("a") == [Match("s", Granted(1, False, ()), None)]
    index.add("s", Subscription("+", 0, identifier=2))
    (match,) = index.find("a")
    assert match.granted == Granted(1, False, (2,))
    assert match.to_publisher == Granted(0, False, (2,))


def test_changes_are_seen_at_once():
    index = SubscriptionIndex()
    assert index.find("a") == []
    assert index.add("s", Subscription("a", 0)) is None
    assert index.find("a")[0].granted.qos == 0
    assert index.add("s", Subscription("a", 2)) == Subscription("a", 0)
    assert index.find("a")[0].granted.qos == 2
    assert index.count == 1
    assert index.remove("s", "a") == Subscription("a", 2)
    assert index.remove("s", "a") is None
    assert index.find("a") == []
