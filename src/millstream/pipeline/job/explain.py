"""A failure of Spark in one line: the error that started it, without the stack of those that passed it on."""

import re

_CAUSE = re.compile(r"^\s*(?:[\w$]+\.)*([A-Za-z]\w*): (\S.*)$", re.MULTILINE)
_WRAPPERS = {
    "Py4JException", "Py4JJavaError", "PythonException", "RuntimeException", "SparkException", "Traceback",
    "SparkRuntimeException", "StreamingQueryException", "PySparkRuntimeError",
}  # fmt: skip
_LONGEST = 300


def in_one_line(error: BaseException) -> str:
    text = str(error)
    found = [match for match in _CAUSE.finditer(text) if match[1] not in _WRAPPERS and match[1][0].isupper()]
    # The data source and the store say what to do; the deepest of their errors is the cause.
    causes = [match for match in found if "millstream." in match[0]] or found
    line = (
        causes[-1][2]
        if causes
        else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    )
    line = " ".join(line.split())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."
