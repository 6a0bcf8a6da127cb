"""`millstream log verify --bootstrap`: compares the replicas of a running cluster."""

from collections.abc import Sequence
from dataclasses import asdict

import typer

from millstream.backup.manifest import Selection, name_of
from millstream.backup.replicas import ComparedPartition, ReplicaComparer
from millstream.backup.source import Place
from millstream.cli import output
from millstream.cli.backup_work import backup_errors
from millstream.cli.errors import ExitCode, print_error
from millstream.cli.options import parse_topics
from millstream.cli.progress import ByteBar
from millstream.cli.target import Target


def verify_replicas(target: Target, topics: Sequence[str], as_json: bool) -> None:
    selection = Selection(parse_topics(topics))
    compared = []
    with backup_errors(), target.cluster() as cluster, ByteBar("comparing") as bar:
        for topic in selection.of_cluster(cluster.topics(None)):
            for each in topic.partitions:
                if selection.has(name_of(topic), each.partition):
                    place = Place(name_of(topic), topic.topic_id, each.partition)
                    comparer = ReplicaComparer(cluster, place, each.replicas, each.leader, bar.advance)
                    compared.append(comparer.compare())
    show_compared(compared, as_json)


def show_compared(compared: list[ComparedPartition], as_json: bool) -> None:
    if as_json:
        output.json_document(
            {
                "same": all(each.is_same for each in compared),
                "partitions": [asdict(each) for each in compared],
            }
        )
    else:
        output.table(
            ("topic", "partition", "replicas", "from", "to", "bytes", "result"),
            [
                (
                    each.topic,
                    each.partition,
                    each.replicas,
                    each.compared_from,
                    each.compared_to,
                    each.size_bytes,
                    result_of(each),
                )
                for each in compared
            ],
        )
    output.flush()
    for each in compared:
        for difference in each.differences:
            print_error(
                f"{each.topic}-{each.partition} at offset {difference.offset}, node {difference.node}:"
                f" {difference.message}"
            )
        if each.away:
            print_error(
                f"{each.topic}-{each.partition}: not compared, nodes {each.away} do not answer for it"
            )
    if not all(each.is_same for each in compared):
        raise typer.Exit(ExitCode.FAILURE)


def result_of(compared: ComparedPartition) -> str:
    if compared.differences:
        return "differs" if len(compared.replicas) > 1 else "damaged"
    if compared.away:
        return "not all there"
    return "same" if len(compared.replicas) > 1 else "sound"
