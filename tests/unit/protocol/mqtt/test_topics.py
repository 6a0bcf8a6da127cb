"""Names, filters and what matches: by the specifications' own examples, and the trees against one plain rule."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocol.mqtt.name_tree import NameTree
from millstream.protocol.mqtt.topic_tree import TopicTree
from millstream.protocol.mqtt.topics import MOST_LEVELS, is_filter, is_name, matches, overlaps, shared

levels = st.sampled_from(["a", "b", "", "$x"])
names = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = (
    st.tuples(st.lists(levels | st.just("+"), max_size=4), st.sampled_from([[], ["#"]]))
    .map(lambda parts: "/".join(parts[0] + parts[1]))
    .filter(bool)
)


@pytest.mark.parametrize(
    ("text", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "a/b", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/x", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/monitor/Clients", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("a/+", "a/$b", True),
        ("ACCOUNTS", "Accounts", False),
    ],
)
def test_filters_match_as_the_specification_says(text, topic, expected):
    assert matches(text, topic) is expected
    tree: TopicTree[int, str] = TopicTree()
    tree.put(text, 1, "held")
    assert tree.match(topic) == ([{1: "held"}] if expected else [])


@pytest.mark.parametrize(
    "text", ["a", "/", "a//b", "+", "#", "+/a/#", "$SYS/#", "a b/ü", "/" * (MOST_LEVELS - 1)]
)
def test_valid_filters(text):
    assert is_filter(text)


@pytest.mark.parametrize("text", ["", "a#", "#/a", "a/#/b", "a+", "+a/b", "a/b+", "##", "/" * MOST_LEVELS])
def test_invalid_filters(text):
    assert not is_filter(text)


def test_names_have_no_wildcards():
    assert all(map(is_name, ("a/b", "/", "$SYS")))
    assert not any(map(is_name, ("", "a/+", "#", "a#b")))


def test_shared_filters():
    assert shared("a/b") is None
    assert shared("$shared/a") is None
    assert shared("$share/g/a/+") == ("g", "a/+")
    assert shared("$share/g//a") == ("g", "/a")
    for broken in ("$share", "$share/", "$share/g", "$share/g/", "$share//a", "$share/g+/a", "$share/g/a#"):
        with pytest.raises(ValueError, match="share"):
            shared(broken)


@settings(deadline=None)
@given(st.lists(st.tuples(filters, st.integers(0, 3)), max_size=12), st.lists(names, max_size=6))
def test_the_tree_of_filters_finds_what_the_rule_finds(held, topics):
    tree: TopicTree[int, str] = TopicTree()
    for text, holder in held:
        tree.put(text, holder, text)
    assert tree.count == len(set(held))
    for topic in topics:
        found = sorted((text, holder) for each in tree.match(topic) for holder, text in each.items())
        assert found == sorted({(text, holder) for text, holder in held if matches(text, topic)})
    for text, holder in set(held):
        assert tree.remove(text, holder) == text
        assert tree.remove(text, holder) is None
    assert tree.count == 0
    assert tree._root.children == {}


@settings(deadline=None)
@given(st.sets(names, max_size=12), st.sets(names, max_size=4), filters, st.integers(1, 5), st.integers(1, 5))
def test_the_tree_of_names_finds_what_the_rule_finds_page_by_page(kept, removed, text, found, visited):
    tree: NameTree[str] = NameTree()
    for name in kept | removed:
        tree.put(name, name)
    tree.find("#", most_found=100, most_visited=100)
    for name in removed:
        assert tree.remove(name) == name
    seen, after = [], None
    while True:
        page = tree.find(text, after=after, most_found=found, most_visited=visited)
        seen += [name for name, _ in page.found]
        after = page.after
        if after is None:
            break
    assert sorted(seen) == sorted(name for name in kept - removed if matches(text, name))
    assert len(seen) == len(set(seen))
    assert tree.count == len(kept - removed)


@settings(deadline=None)
@given(filters, filters, names)
def test_filters_that_match_the_same_name_overlap(first, second, topic):
    if matches(first, topic) and matches(second, topic):
        assert overlaps(first, second)
        assert overlaps(second, first)


def test_filters_that_share_no_name_do_not_overlap():
    for first, second in [("a/b", "a/c"), ("a/+", "a"), ("a/+/c", "a/b/d"), ("+/x", "$a/x"), ("a/#", "b/#")]:
        assert not overlaps(first, second)
        assert not overlaps(second, first)


def test_filters_of_every_combination_of_a_level_and_a_wildcard_are_found():
    tree: TopicTree[int, int] = TopicTree()
    depth = 10
    for number in range(1 << depth):
        tree.put("/".join("+" if number >> bit & 1 else "a" for bit in range(depth)), 0, number)
    assert len(tree.match("/".join("a" * depth))) == 1 << depth
    assert len(tree.match("/".join("b" * depth))) == 1
    assert tree.match("/".join("b" * (depth + 1))) == []
