"""The table of APIs in docs/COMPATIBILITY.md: `python -m millstream.protocol.api_table` prints it."""

import sys

from millstream.protocol.api import APIS, NEVER_FLEXIBLE, PRODUCE, PRODUCE_SERVED_FROM, Api


def render_api_table() -> str:
    lines = ["| key | API | versions | flexible from |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {api.key} | {kafka_name(api)} | {_versions(api)} | {_flexible(api)} |" for api in APIS.values()
    ]
    return "\n".join(lines) + "\n"


def kafka_name(api: Api) -> str:
    return "".join(word.capitalize() for word in api.name.split("_"))


def _versions(api: Api) -> str:
    first = PRODUCE_SERVED_FROM if api.key == PRODUCE else api.min_version
    return str(first) if first == api.max_version else f"{first} to {api.max_version}"


def _flexible(api: Api) -> str:
    return "never" if api.flexible_from == NEVER_FLEXIBLE else str(api.flexible_from)


if __name__ == "__main__":
    sys.stdout.write(render_api_table())
