"""Progress: a bar on a terminal, one line a step elsewhere."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Display:
    def __init__(self, console: Console, scenarios: int) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[scenario]:<16}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task("", total=scenarios, scenario="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, scenario: str) -> None:
        self._progress.update(self._task, scenario=scenario, description="")
        self._scenario = scenario

    def step(self, text: str) -> None:
        if self._console.is_terminal:
            self._progress.update(self._task, description=text)
        else:
            self._console.print(f"{self._scenario}: {text}", highlight=False, soft_wrap=True)

    def end(self) -> None:
        self._progress.advance(self._task)
