"""What a caller is told when a request cannot be answered: a status and one sentence."""


class Problem(Exception):
    """Answered as `{"error": message}` with `status`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def bad_request(message: str) -> Problem:
    return Problem(400, message)


def not_found(message: str) -> Problem:
    return Problem(404, message)
