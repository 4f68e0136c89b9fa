"""Settings that could be changed, with the way back, and the records of those that were. Doing it is the apply
room's business."""

from typing import Literal

from wellfed.model.base import Value

Risk = Literal["safe", "restart", "reboot", "unsafe"]
"""safe: live and undone at once. restart: the job or a service must restart. reboot: takes a reboot or
firmware. unsafe: can lose work, isolation or the connection."""


class Change(Value, frozen=True, kw_only=True):
    """`kind` is the mechanism (`sysctl`, `sysfs`, `service`...), `old` None when it was not set or not seen.

    A `target` with `*` stands for several knobs of one kind, and a `new` of `@name` for what the file `name` beside
    the knob says; both are resolved on the machine. `evidence` is how well the effect is known, `why` one sentence
    for people, `owner` who else sets this knob here, `proof` the measurement that tells whether it pays."""

    code: str
    kind: str
    target: str
    old: str | None = None
    new: str
    restore: str
    verify: str | None = None
    risk: Risk = "safe"
    evidence: str = "none"
    why: str = ""
    owner: str | None = None
    cuts_network: bool = False
    proof: str | None = None


RecordType = Literal[
    "begin",
    "intent",
    "applied",
    "verified",
    "failed",
    "revert_intent",
    "reverted",
    "skipped_drift",
    "void",
    "confirmed",
    "expired",
    "commit",
    "end",
]


class Record(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a journal. `op` numbers the knobs of a transaction from 0; None for `begin`, `commit`, `end`.

    `old` is the value to go back to, `new` the one to be written, `read_back` what the machine said afterwards,
    `errno` the kernel's refusal. `ts` is UTC, ISO 8601. `boot_id` is of the boot in which the record was written.
    A `begin` with `confirm_within_s` is undone unless `confirmed` comes in time; `boot_s` is when it began, in seconds
    since the machine was started (a clock that nobody sets). `expired` says that it was undone so."""

    v: int = 0
    seq: int = -1
    txid: str = ""
    ts: str = ""
    boot_id: str = ""
    type: RecordType
    op: int | None = None
    code: str | None = None
    kind: str | None = None
    target: str | None = None
    old: str | None = None
    new: str | None = None
    read_back: str | None = None
    errno: int | None = None
    note: str | None = None
    confirm_within_s: float | None = None
    boot_s: float | None = None
    sha256_of_previous: str = ""


OpState = Literal["intended", "applied", "failed", "reverting", "reverted", "void"]


class Op(Value, frozen=True, kw_only=True):
    """What has become of one knob of a transaction. `held` is what it read after we wrote it, `goal` the value an
    unfinished undo was about to write, `boot_id` the boot in which it was written."""

    txid: str
    number: int
    code: str
    kind: str
    target: str
    old: str | None
    new: str
    state: OpState
    boot_id: str
    held: str | None = None
    goal: str | None = None
    note: str | None = None


StepState = Literal["ready", "done", "needs-yes", "needs-allow", "instruction", "impossible"]


class Step(Value, frozen=True, kw_only=True):
    """One line of a plan: a change, whether it would be made, and why not. `write` and `undo` are shell lines that
    do the same by hand, `privilege` is what they need."""

    change: Change
    state: StepState
    reason: str | None = None
    write: str | None = None
    undo: str | None = None
    privilege: str | None = None


class Plan(Value, frozen=True, kw_only=True):
    """What `tune apply` would do. `notes` hold for the whole machine."""

    made_by: str = ""
    origin: str = ""
    intent: str = ""
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()


Outcome = Literal["applied", "already", "failed", "reverted", "drift", "void", "same", "changed", "missing"]


class Done(Value, frozen=True, kw_only=True):
    """What was done to a knob, or found of it: `now` is what it reads."""

    txid: str
    code: str
    kind: str
    target: str
    outcome: Outcome
    old: str | None = None
    new: str | None = None
    now: str | None = None
    note: str | None = None
