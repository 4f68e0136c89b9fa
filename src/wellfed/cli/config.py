"""`wellfed.toml`, or `[tool.wellfed]` of `pyproject.toml`: what a project has agreed on.

    intent = "latency"
    price = 2.5                       # USD an hour for one GPU

    [ignore]
    CPU01 = "the hosts cap their power on purpose, ticket 123"

The nearest folder from the working one upwards that has such a file counts; `wellfed.toml` comes first.
Only click is imported at the top: `--help` must stay fast.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from wellfed.cli.common import note

if TYPE_CHECKING:
    from wellfed.model import Case, WellfedError

F = TypeVar("F", bound=Callable[..., Any])

INTENTS = ("training", "latency", "throughput", "benchmark")
"""As `wellfed.check.INTENTS`, which must not be imported for `--help`."""

MAX_BYTES = 256 << 10
MAX_PRICE = 1e6
_DEEP_KEY = re.compile(r"(?<![\w\"'-])(?:[\w\"'-]+[ \t]*\.[ \t]*){64}")
"""tomllib takes the square of its length for a key with so many dots."""
MAX_NOTES = 10
_KEYS = ("intent", "price", "ignore")


class Config(NamedTuple):
    """`intent` and `price` (USD per GPU and hour) are None when not set; `source` is None without a file."""

    intent: str | None = None
    price: float | None = None
    ignore: dict[str, str] = {}
    source: Path | None = None


def read_config(start: Path | None = None) -> Config:
    """The configuration that counts in `start` (the working folder). Raises WellfedError for a file that can't
    be read, a key that is not known, or an ignore without a reason."""
    try:
        folder = (start or Path.cwd()).absolute()
    except FileNotFoundError:
        return Config()  # the working folder is gone, and what was in it too
    for place in (folder, *folder.parents):
        for path, inner in ((place / "wellfed.toml", ()), (place / "pyproject.toml", ("tool", "wellfed"))):
            table = _table(path, inner)
            if table is not None:
                return _config(table, path)
    return Config()


def intent_option(command: F) -> F:
    """Adds `--intent`, passed as `intent`: the flag, else the configuration, else training."""
    option = click.option(
        "--intent",
        type=click.Choice(INTENTS),
        callback=lambda _context, _option, value: value or read_config().intent or INTENTS[0],
        help="What the machine is for; some settings suit one kind of work only.  [default: training]",
    )
    return option(command)


def ignores() -> dict[str, str]:
    """Code -> reason of the findings to set aside. Codes that no check has are told on stderr."""
    from wellfed.check import require_code
    from wellfed.model import WellfedError

    config = read_config()
    unknown: list[str] = []
    for code in config.ignore:
        try:
            require_code(code)
        except WellfedError as error:
            unknown.append(error.message)
            if len(unknown) > MAX_NOTES:
                break
    for message in unknown[:MAX_NOTES]:
        note(f"note: {_name(config.source)} ignores what there is not: {message}")
    if len(unknown) > MAX_NOTES:
        note(f"note: {_name(config.source)} ignores more codes that no check has")
    return config.ignore


def tell_unused(case: "Case", ignore: dict[str, str]) -> None:
    """One line on stderr for each ignore that is not needed any more, since its check passes."""
    for verdict in case.verdicts:
        if verdict.verdict == "pass" and verdict.code in ignore:
            note(f"note: the ignore of {verdict.code} is not needed here: {verdict.message}")


def _table(path: Path, inner: tuple[str, ...]) -> dict[str, Any] | None:
    """The table of wellfed in a file; None when there is no file, or nothing of ours in it."""
    import tomllib

    if not os.path.isfile(path):  # noqa: PTH113 - which never raises; to open a pipe would wait for a writer
        return None
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, PermissionError):
        return None
    except OSError as error:
        raise _error(path, error.strerror or str(error)) from error
    if inner and b"wellfed" not in data:
        return None  # somebody else's file, and nothing of ours in it
    if len(data) > MAX_BYTES:
        raise _error(path, f"larger than {MAX_BYTES >> 10} KiB")
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
        if _DEEP_KEY.search(text):
            raise _error(path, "a key has more than 64 parts")
        table: Any = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: no TOML, no UTF-8, a number of 5,000 digits
        what = "nested too deep" if isinstance(error, RecursionError) else error
        raise _error(path, f"not TOML: {what}") from error
    for key in inner:
        table = table.get(key) if isinstance(table, dict) else None
    if table is not None and not isinstance(table, dict):
        raise _error(path, f"`{'.'.join(inner)}` is no table")
    return table


def _config(table: dict[str, Any], path: Path) -> Config:
    for key in table:
        if key not in _KEYS:
            raise _error(path, f"no key `{key}`{_nearest(key)}", hint=f"known keys: {', '.join(_KEYS)}")
    intent, price = table.get("intent"), table.get("price")
    if intent is not None and intent not in INTENTS:
        raise _error(path, f"no intent {intent!r}", hint=f"intent is one of: {', '.join(INTENTS)}")
    if price is not None and (
        isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price <= MAX_PRICE
    ):
        raise _error(path, f"price {price!s} is no number of USD per GPU and hour", hint="price = 2.5")
    return Config(intent, None if price is None else float(price), _ignore(table, path), path)


def _ignore(table: dict[str, Any], path: Path) -> dict[str, str]:
    reasons = table.get("ignore", {})
    if not isinstance(reasons, dict):
        raise _error(path, "`ignore` is no table", hint='[ignore] with lines such as CPU01 = "reason"')
    for code, reason in reasons.items():
        if not isinstance(reason, str) or not any(map(str.isalnum, reason)):
            raise _error(
                path,
                f"the ignore of {code} has no reason",
                hint=f'write why: {code} = "agreed in ticket 123"',
            )
    return {code: reason.strip() for code, reason in reasons.items()}


def _error(path: Path, what: str, hint: str | None = None) -> "WellfedError":
    from wellfed.model import WellfedError

    return WellfedError(
        f"{_name(path)}: {what}", hint=hint or 'a line of it: intent = "training"; or remove it'
    )


def _name(path: Path | None) -> str:
    if path is None:
        return "configuration"
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _nearest(key: str) -> str:
    import difflib

    near = difflib.get_close_matches(key, _KEYS, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""
