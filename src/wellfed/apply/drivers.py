"""Settings of NVIDIA's driver: persistence, power limit and compute mode of a GPU, through nvidia-smi.

A target is `0000:18:00.0/power_limit`. They hold until the driver is unloaded, which without persistence happens
whenever nobody uses the GPU; so persistence is set first.
"""

import errno
import re
import shlex

from wellfed.apply import commands
from wellfed.apply.commands import Run
from wellfed.apply.knobs import EARLY, Plain, Refused
from wellfed.apply.root import Root
from wellfed.apply.services import real
from wellfed.model import WellfedError

_FIELDS = ("address", "persistence_mode", "power_limit", "power_min", "power_max", "compute_mode")
_SETTING = {"persistence_mode": "set-persistence", "power_limit": "set-power", "compute_mode": "set-compute"}
_OPTION = {"persistence_mode": "-pm", "power_limit": "-pl", "compute_mode": "-c"}
_TARGET = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]|\*)/(\w+)")
_WORDS = {
    "persistence_mode": {"0": "disabled", "1": "enabled"},
    "compute_mode": {"0": "default", "2": "prohibited", "3": "exclusive_process"},
}
"""What nvidia-smi takes -> what it says."""


class NvmlKind(Plain):
    """`0000:18:00.0/persistence_mode`, or `*/persistence_mode` for every GPU."""

    lasts = False

    def __init__(self, run: Run = commands.run) -> None:
        self.run = run

    def parts(self, target: str) -> tuple[str, str]:
        match = _TARGET.fullmatch(target)
        if match is None or match[2] not in _SETTING:
            raise WellfedError(
                f"`{target}` is no setting of a GPU", hint='target = "0000:18:00.0/persistence_mode"'
            )
        return match[1], match[2]

    def key(self, target: str) -> str:
        address, name = self.parts(target)
        return f"{_short(address)}/{name}"

    def expand(self, root: Root, target: str) -> list[str]:
        address, name = self.parts(target)
        if address != "*":
            return [target]
        try:
            return [f"{_short(row['address'])}/{name}" for row in self._rows(root, "gpus")]
        except OSError:
            return []

    def order(self, target: str) -> int:
        return EARLY if target.endswith("/persistence_mode") else 0

    def read(self, root: Root, target: str) -> str | None:
        value = self._row(root, target)[self.parts(target)[1]]
        if not value or value.startswith("["):
            raise OSError(errno.EOPNOTSUPP, f"this GPU has no {self.parts(target)[1]}")
        return value

    def write(self, root: Root, target: str, value: str | None) -> None:
        if value is None:
            raise Refused(errno.EINVAL, "a GPU's setting always has a value")
        address, name = self.parts(target)
        real(root, self.run)
        self.run(_SETTING[name], address=address, value=_taken(name, value))

    def same(self, target: str, a: str | None, b: str | None) -> bool:
        if a is None or b is None:
            return a is b
        name = self.parts(target)[1]
        return _plain(name, a) == _plain(name, b)

    def obstacle(self, root: Root, target: str, new: str) -> str | None:
        name = self.parts(target)[1]
        words = _WORDS.get(name)
        if words is not None:
            known = _plain(name, new) in words.values()
            return None if known else f"{name} is {', '.join(words.values())}, not {new}"
        row = self._row(root, target)
        try:
            wanted, low, high = float(new), float(row["power_min"]), float(row["power_max"])
        except ValueError:
            return f"the limits of {target} are {row['power_min']} to {row['power_max']} W, and {new} can't be compared"
        return (
            None
            if low <= wanted <= high
            else f"power limits of this GPU are {low:g} to {high:g} W, not {new}"
        )

    def shell(self, target: str, value: str | None) -> str:
        address, name = self.parts(target)
        taken = shlex.quote(_taken(name, value or ""))
        return f"sudo nvidia-smi -i {shlex.quote(address)} {_OPTION[name]} {taken}"

    def _row(self, root: Root, target: str) -> dict[str, str]:
        rows = self._rows(root, "gpu", address=self.parts(target)[0])
        if len(rows) != 1:
            raise OSError(errno.ENODEV, f"no GPU {self.parts(target)[0]}")
        return rows[0]

    def _rows(self, root: Root, name: str, /, **blanks: str) -> list[dict[str, str]]:
        real(root, self.run)
        lines = [line.split(", ") for line in self.run(name, **blanks).splitlines()]
        return [
            dict(zip(_FIELDS, (word.strip() for word in words), strict=True))
            for words in lines
            if len(words) == len(_FIELDS)
        ]


def _short(address: str) -> str:
    """The address as sysfs writes it: a domain of four digits, small letters."""
    domain, colon, rest = address.lower().partition(":")
    return (
        f"{domain[-4:].zfill(4) if int(domain or '0', 16) < 1 << 16 else domain}{colon}{rest}"
        if colon
        else address
    )


def _plain(name: str, text: str) -> object:
    text = text.strip().lower()
    if name == "power_limit":
        try:
            return round(float(text.removesuffix("w").strip()), 2)
        except ValueError:
            return text
    return _WORDS[name].get(text, text)


def _taken(name: str, value: str) -> str:
    """A value as nvidia-smi takes it."""
    if name == "power_limit":
        return value.strip()
    said = _plain(name, value)
    return next((number for number, word in _WORDS[name].items() if word == said), value)
