"""What snippets of the documents take as given, by the names that the documents have for it."""

PYTHON = {
    "a consumer": """
from millstream.client import Consumer, Producer
with Producer("localhost:9092") as producer:
    producer.send("events", "Hello")
consumer = Consumer("localhost:9092", group_id="billing", auto_offset_reset="earliest")
consumer.subscribe(["events"])
process = print
""",
    "a database": """
import sqlite3
from millstream.client import Consumer, Producer
with Producer("localhost:9092") as producer:
    stored = producer.send("events", "Hello").result()
topic, database = "events", sqlite3.connect(":memory:")
database.execute("create table positions (next int)")
position_in = lambda database: stored.offset
apply = lambda message, database: print(message.value)
store_position = lambda database, position: database.execute("insert into positions values (?)", [position])
consumer = Consumer("localhost:9092")
""",
    "jobs": """
import queue
from millstream.client import Consumer
jobs, HIGH, LOW = queue.Queue(), 100, 10
consumer = Consumer("localhost:9092")
consumer.assign({("events", 0): 0})
for _ in range(HIGH):
    jobs.put(1)
""",
    "settings": "from millstream.client import ProducerConfig\n",
    "work": """
from millstream.client import Admin, Producer
from millstream.client.errors import TopicExistsError
class Temporary(Exception): pass
seen = []
def work(value):
    seen.append(value)
    print("work", value, flush=True)
    if len(seen) < 3:
        raise Temporary if len(seen) == 1 else ValueError("broken")
try:
    with Admin("localhost:9092") as admin:
        admin.create_topic("jobs")
except TopicExistsError:
    pass
with Producer("localhost:9092") as producer:
    for number in range(3):
        producer.send("jobs", f"job {number}")
""",
    "orders": 'from millstream.client import Producer\nwith Producer("localhost:9092") as p: p.send("orders", "x")\n',
    "events": 'from millstream.client import Producer\nwith Producer("localhost:9092") as p: p.send("events", "x")\n',
    "a session": 'import millstream.spark\nspark = millstream.spark.session(master="local[1]")\n',
}

SHELL = {
    "a topic and a plan": (
        "millstream cluster up --nodes 4 --data four",
        "millstream topic create orders --replication-factor 2",
        'echo \'{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 3]}]}\' > plan.json',
    ),
    "dead letters": (
        "millstream topic create dlq.jobs --config errors.deadletterqueue.group.enable=true",
        "yes job | head -20 | millstream produce jobs",
    ),
    "a job": ("mkdir millstream-pipeline",),
    "a fleet": ("millstream telemetry stream --hosts 1",),
    "a topic": ("echo x | millstream produce events",),
    "groups": (
        "for topic in invoices other; do echo x | millstream produce $topic; done",
        "millstream consume invoices --group billing",
        "millstream consume other --group old-group",
    ),
}
