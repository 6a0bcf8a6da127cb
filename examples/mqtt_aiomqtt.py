"""Jobs of a queue with aiomqtt: each goes to one worker, and comes again if it was given back.

    millstream serve --mqtt 127.0.0.1:1883
    python examples/mqtt_aiomqtt.py

`$queue/{name}` is a topic of the log with a share group: Kafka and HTTP clients can work off the same queue.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

ADDRESS = urlsplit(os.environ.get("MQTT_URL", "mqtt://localhost:1883"))
JOBS = 6


def client(name: str) -> aiomqtt.Client:
    return aiomqtt.Client(
        ADDRESS.hostname or "", ADDRESS.port or 1883, identifier=name, protocol=aiomqtt.ProtocolVersion.V5
    )


def user_properties(packet: int, *pairs: tuple[str, str]) -> Properties:
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    properties.UserProperty = list(pairs)
    return properties


async def settle(worker: aiomqtt.Client, message: aiomqtt.Message, how: str) -> None:
    """By what the delivery carries: how is $ack, $nack (it comes again) or $reject."""
    given = dict(getattr(message.properties, "UserProperty", ()))
    names = [(name, given[name]) for name in ("message-id", "group-id")]
    properties = user_properties(PacketTypes.PUBLISH, *names)
    await worker.publish(f"$queue/example-jobs/{how}", qos=1, properties=properties)


async def jobs(worker: aiomqtt.Client) -> AsyncIterator[aiomqtt.Message]:
    properties = user_properties(PacketTypes.SUBSCRIBE, ("consumer-group", "example-workers"))
    await worker.subscribe("$queue/example-jobs", qos=1, properties=properties)
    async for message in worker.messages:
        yield message


async def main() -> None:
    async with client("example-boss") as boss:
        for number in range(JOBS):
            await boss.publish("$queue/example-jobs", f"job {number}", qos=1)
    done: list[str] = []
    refused = 0
    async with client("example-worker") as worker:
        async for message in jobs(worker):
            text = bytes(message.payload).decode()
            if text == "job 3" and not refused:
                refused += 1
                await settle(worker, message, "$nack")
                continue
            await settle(worker, message, "$ack")
            done.append(text)
            if len(done) == JOBS:
                break
    print(f"{len(set(done))} of {JOBS} jobs done, {refused} of them at the second try")


if __name__ == "__main__":
    asyncio.run(main())
