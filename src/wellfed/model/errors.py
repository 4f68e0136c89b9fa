"""The error a user sees. Our own mistakes are assertions, not this."""


class WellfedError(Exception):
    """What went wrong, on which thing, and one hint that works when pasted.

    `exit_code` is 2 (usage, or nothing could be read) unless said otherwise.
    """

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
