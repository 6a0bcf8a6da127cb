"""The plug-in in test runs of its own, as its users have it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

README = Path(__file__).resolve().parents[3] / "README.md"


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Without the plug-in that takes longest to load."""
    return pytester.runpytest_subprocess("-p", "no:schemathesis", *arguments)


def test_example_of_the_readme_passes(pytester: pytest.Pytester) -> None:
    blocks = README.read_text().split("```python\n")[1:]
    (example,) = [block.split("```")[0] for block in blocks if "def test_" in block]
    pytester.makepyfile(example)

    run(pytester, "-q", "--strict-markers").assert_outcomes(passed=1)


def test_every_test_has_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from confluent_kafka import Producer

        seen = []

        def test_one(millstream_broker):
            seen.append(millstream_broker.pid)
            producer = Producer({"bootstrap.servers": millstream_broker.bootstrap_servers})
            producer.produce("events", b"hello")
            assert producer.flush(90) == 0

        def test_two(millstream_broker):
            assert millstream_broker.pid not in seen
        """
    )

    run(pytester, "-q").assert_outcomes(passed=2)


def test_marker_chooses_topics_and_settings(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka.admin import AdminClient

        pytestmark = pytest.mark.millstream(topics=["common"], settings={"broker.auto_create_topics": False})

        @pytest.mark.millstream(topics={"events": 3})
        def test_topics(millstream_broker):
            admin = AdminClient({"bootstrap.servers": millstream_broker.bootstrap_servers})
            topics = admin.list_topics(timeout=90).topics
            assert {name: len(topic.partitions) for name, topic in topics.items()} == {"common": 1, "events": 3}
        """
    )

    run(pytester, "-q", "--strict-markers").assert_outcomes(passed=1)


def test_session_scope_shares_a_broker_for_the_same_settings(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmillstream_scope = session\n")
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka.admin import AdminClient

        pids = []

        @pytest.mark.parametrize("number", range(2))
        @pytest.mark.millstream(topics={"events": 3})
        def test_shared(millstream_broker, number):
            pids.append(millstream_broker.pid)

        @pytest.mark.millstream(topics={"more": 2})
        def test_topics_are_added(millstream_broker):
            pids.append(millstream_broker.pid)
            admin = AdminClient({"bootstrap.servers": millstream_broker.bootstrap_servers})
            topics = admin.list_topics(timeout=90).topics
            assert {"events", "more"} <= set(topics)

        @pytest.mark.millstream(settings={"log.retention.bytes": 1000000})
        def test_other_settings(millstream_broker):
            pids.append(millstream_broker.pid)

        @pytest.mark.millstream(scope="function")
        def test_of_its_own(millstream_broker):
            pids.append(millstream_broker.pid)

        def test_which_is_which():
            assert pids[0] == pids[1] == pids[2]
            assert len({pids[2], pids[3], pids[4]}) == 3
        """
    )

    run(pytester, "-q").assert_outcomes(passed=6)


def test_shared_broker_that_a_test_killed_is_replaced(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.millstream(scope="session")

        def test_kills_it(millstream_broker):
            millstream_broker.kill()

        def test_gets_another(millstream_broker):
            assert millstream_broker.is_running
        """
    )

    run(pytester, "-q").assert_outcomes(passed=2)


def test_factory_serves_fixtures_of_wider_scope(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def two_brokers(millstream_broker_factory):
            return [millstream_broker_factory(topics={"events": 1}), millstream_broker_factory()]

        def test_two(two_brokers):
            first, second = two_brokers
            assert first.bootstrap_servers != second.bootstrap_servers
        """
    )

    run(pytester, "-q").assert_outcomes(passed=1)


def test_log_is_shown_with_a_failed_test_only(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_passes(millstream_broker):
            pass

        def test_fails(millstream_broker):
            assert False
        """
    )

    result = run(pytester, "-q")

    result.assert_outcomes(passed=1, failed=1)
    assert str(result.stdout).count("millstream broker log") == 1
    result.stdout.fnmatch_lines(['*"event":*"ready"*'])


def test_broker_that_cannot_start_is_an_error_with_its_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.millstream(settings={"storage.segment_sise": 1})
        def test_setting(millstream_broker):
            pass
        """
    )

    result = run(pytester, "-q")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*did you mean 'segment_size'?*"])


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ('scope="class"', "*the scope is 'class'; choose one of function, session*"),
        ("topic=1", "*takes topics=*"),
    ],
)
def test_marker_that_cannot_be_used_is_told(pytester: pytest.Pytester, marker: str, message: str) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.millstream({marker})
        def test_marker(millstream_broker):
            pass
        """
    )

    result = run(pytester, "-q")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])


def test_run_without_brokers_imports_nothing_of_the_product() -> None:
    code = (
        "import sys, millstream.testing.pytest_plugin as plugin;"
        "print(sorted(name for name in sys.modules if name.startswith(('millstream', 'confluent_kafka'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['millstream', 'millstream.testing', 'millstream.testing.pytest_plugin']"
