"""One setting that could be changed, with the way back. Applying is the apply room's business."""

from typing import Literal

from wellfed.model.base import Value

Risk = Literal["safe", "restart", "reboot", "unsafe"]
"""safe: live and undone at once. restart: the job or a service must restart. reboot: takes a reboot or
firmware. unsafe: can lose work, isolation or the connection."""


class Change(Value, frozen=True, kw_only=True):
    """`kind` is the mechanism (`sysctl`, `sysfs`, `env`...), `old` None when it was not set."""

    code: str
    kind: str
    target: str
    old: str | None = None
    new: str
    restore: str
    verify: str | None = None
    risk: Risk = "safe"
