"""A consumer of a queue as a program: it accepts most messages, rejects some, and says what it sees, a line for each.

What it is about to do is said before it is done: whoever kills it knows what may have happened.
"""

import sys
import time

from millstream.client import ClientError, QueueConsumer, QueueMessage
from millstream.testing.history.queues import QueueStep

EVERY_TENTH = 10


def main(topic: str, group: str, bootstrap: str) -> None:
    with QueueConsumer(topic, group, bootstrap) as queue:
        while True:
            asked = time.monotonic()
            try:
                messages = queue.receive(20, 1.0)
            except ClientError:
                continue
            for message in messages:
                say(QueueStep.DELIVERED, asked, message)
            for message in messages:
                settle(queue, message)


def settle(queue: QueueConsumer, message: QueueMessage) -> None:
    rejects = int(message.value or b"") % EVERY_TENTH == 0
    try:
        if rejects:
            queue.reject(message, reason="a tenth")
        else:
            say(QueueStep.TRIED, time.monotonic(), message)
            queue.accept(message)
            # Whoever is slower than its lock may hear that another has settled it, in whatever way.
            say(QueueStep.SETTLED, time.monotonic(), message)
    except ClientError:
        pass


def say(step: QueueStep, at: float, message: QueueMessage) -> None:
    sys.stdout.write(f"{step} {at} {(message.value or b'').decode()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
