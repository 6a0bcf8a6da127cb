"""Exactly once, in effect: every payment is booked once, whatever crashes.

Two halves. The producer is idempotent, so a retry does not write a message twice. The consumer stores its position in
the same database transaction as the result: either both are there or neither, and a restart continues at the position
that the database knows, not at one that was committed elsewhere.
"""

import os
import sqlite3
import uuid

from millstream.client import (
    JSON,
    Consumer,
    ConsumerConfig,
    OffsetResetPolicy,
    Producer,
    ProducerConfig,
    ProducerRecord,
)

SERVERS = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
TOPIC = f"payments-{uuid.uuid4().hex[:8]}"
COUNT = 20


class Crash(Exception):
    """Stands for the power failure."""


def open_database() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE balances (account TEXT PRIMARY KEY, amount INTEGER)")
    database.execute(
        "CREATE TABLE positions (topic TEXT, partition INTEGER, next INTEGER, PRIMARY KEY (topic, partition))"
    )
    return database


def position(database: sqlite3.Connection) -> int:
    row = database.execute(
        "SELECT next FROM positions WHERE topic = ? AND partition = 0", (TOPIC,)
    ).fetchone()
    return row[0] if row else 0


def consume(database: sqlite3.Connection, crash_at: int | None) -> None:
    """Book payments to the end of the topic; with `crash_at`, fail in the middle of that transaction."""
    config = ConsumerConfig(
        bootstrap_servers=[SERVERS], auto_offset_reset=OffsetResetPolicy.EARLIEST, value_deserializer=JSON
    )
    with Consumer(config) as consumer:
        consumer.assign({(TOPIC, 0): position(database)})
        for message in consumer:
            with database:
                database.execute(
                    "INSERT INTO balances VALUES (:account, :amount) "
                    "ON CONFLICT (account) DO UPDATE SET amount = amount + :amount",
                    message.value or {},
                )
                if message.offset == crash_at:
                    raise Crash
                database.execute(
                    "INSERT OR REPLACE INTO positions VALUES (?, 0, ?)", (TOPIC, message.next_offset)
                )
            if message.offset == COUNT - 1:
                return


def main() -> None:
    producer_config = ProducerConfig(
        bootstrap_servers=[SERVERS], enable_idempotence=True, value_serializer=JSON
    )
    with Producer(producer_config) as producer:
        producer.send_batch(ProducerRecord(TOPIC, {"account": "alice", "amount": 5}) for _ in range(COUNT))

    database = open_database()
    try:
        consume(database, crash_at=7)
    except Crash:
        print("crashed while booking payment 7")
    consume(database, crash_at=None)

    (balance,) = database.execute("SELECT amount FROM balances WHERE account = 'alice'").fetchone()
    print(f"alice has {balance}, expected {COUNT * 5}")


if __name__ == "__main__":
    main()
