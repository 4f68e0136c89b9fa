"""The user's own list of changes:

    [[change]]
    kind = "sysctl"
    target = "vm.stat_interval"
    new = "7"
    why = "ticket 123"        # optional, as is `code`

It comes from outside, so all of it is checked before anything is looked at, and every refusal says which change it is.
"""

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from wellfed.apply.engine import Kinds
from wellfed.apply.kinds import KINDS
from wellfed.apply.policy import USER
from wellfed.model import Change, WellfedError

MAX_BYTES = 256 << 10
MAX_CHANGES = 1000
MAX_VALUE = 1 << 16
_LINE = 4096
_NEEDED = ("kind", "target", "new")
_KEYS = (*_NEEDED, "code", "why")
_EXAMPLE = '[[change]] with kind = "sysctl", target = "vm.stat_interval", new = "7"'
_CODE = re.compile(r"[A-Za-z][\w.-]{0,39}")
_DEEP_KEY = re.compile(r"(?<![\w\"'-])(?:[\w\"'-]+[ \t]*\.[ \t]*){64}")
"""tomllib takes the square of its length for a key with so many dots."""


def read_changes(path: str | os.PathLike[str], kinds: Kinds = KINDS) -> tuple[Change, ...]:
    """The changes of a file, in its order. Raises WellfedError for whatever is no such list."""
    name = os.fspath(path)
    table = _table(name)
    for key in table:
        if key != "change":
            raise _error(name, f"no key `{_short(key)}`", _EXAMPLE)
    rows = table.get("change")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise _error(name, "it holds no `[[change]]`", _EXAMPLE)
    if len(rows) > MAX_CHANGES:
        raise _error(name, f"{len(rows)} changes are more than {MAX_CHANGES}", "use several files")
    return tuple(_change(name, number, row, kinds) for number, row in enumerate(rows, 1))


def _change(name: str, number: int, row: dict[str, Any], kinds: Kinds) -> Change:
    which = f"change {number}"
    for key, value in row.items():
        if key not in _KEYS:
            raise _error(name, f"{which}: no key `{_short(key)}`", f"keys: {', '.join(_KEYS)}")
        if not isinstance(value, str):
            quoted = f'{key} = "{value}"' if isinstance(value, int | float) else f'{key} = "..."'
            raise _error(name, f"{which}: `{key}` is no text", f"in quotes: {_short(quoted)}")
    for key in _NEEDED:
        if not row.get(key, "").strip():
            raise _error(name, f"{which} has no `{key}`", _EXAMPLE)
    kind, target, new = (row[key] for key in _NEEDED)
    code, why = row.get("code", USER), row.get("why", "")
    if kind not in kinds:
        raise _error(name, f"{which}: no kind `{_short(kind)}`", f"one of: {', '.join(kinds)}")
    if not _CODE.fullmatch(code):
        raise _error(name, f"{which}: `{_short(code)}` is no code", 'code = "TICKET-123"; or leave it out')
    is_file = kind == "dropin"
    if len(target) > _LINE or len(why) > _LINE or len(new) > (MAX_VALUE if is_file else _LINE):
        raise _error(name, f"{which} is too long", _EXAMPLE)
    for key, text in (("target", target), ("new", new), ("why", why)):
        allowed = "\n\t" if is_file and key == "new" else "\t" if key == "new" else ""
        if not all(char.isprintable() or char in allowed for char in text):
            raise _error(name, f"{which}: `{key}` holds a control character", "take it out")
    return Change(
        code=code, kind=kind, target=target, new=new, restore="wellfed tune undo", evidence=USER, why=why
    )


def _table(name: str) -> dict[str, Any]:
    try:
        # A pipe would be waited for.
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise _error(name, "it is no regular file", "wellfed tune apply --changes my.toml")
            data = file.read(MAX_BYTES + 1)
    except ValueError as error:  # a name that holds a NUL
        raise WellfedError(
            f"can't read {name}: {error}", hint="wellfed tune apply --changes my.toml"
        ) from error
    except OSError as error:
        raise WellfedError(f"can't read {name}: {error.strerror}", hint=f"ls -l {Path(name).name}") from error
    if len(data) > MAX_BYTES:
        raise _error(name, f"it is larger than {MAX_BYTES >> 10} KiB", _EXAMPLE)
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
        if _DEEP_KEY.search(text):
            raise _error(name, "a key has more than 64 parts", _EXAMPLE)
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        what = "nested too deep" if isinstance(error, RecursionError) else error
        raise _error(name, f"not TOML: {what}", _EXAMPLE) from error


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."


def _error(name: str, what: str, hint: str) -> WellfedError:
    return WellfedError(f"{name}: {what}; nothing is changed", hint=hint)
