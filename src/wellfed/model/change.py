"""Settings that could be changed, with the way back, and the records of those that were. Doing it is the apply
room's business."""

from typing import Literal

from wellfed.model.base import Value
from wellfed.model.proof import Proof

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


Consent = Literal["auto", "yes", "named", "instruction"]
"""Who has to agree. auto: live, safe, and its effect is more than a memory. yes: something restarts, or it outlives the
boot. named: it can cost work, isolation or the connection, nobody has seen that it helps, or a file of this site's own
says that it is to be as it is. instruction: by hand."""

PlanState = Literal["change", "already", "missing", "read-only", "refused", "unseen"]
"""missing: there is no such knob here. refused: the kernel or the device takes no such value. unseen: the machine is a
recorded one, or only root may read the knob."""


class Planned(Value, frozen=True, kw_only=True):
    """One knob of a plan: `change.target` is this very knob, `asked` how the check or the user named it, which may
    stand for several. `chosen`: `tune apply` with the same options makes it; if not, `flag` is what is to be added.
    `write` and `undo` are shell lines that do the same by hand."""

    change: Change
    asked: str
    state: PlanState
    consent: Consent
    chosen: bool = False
    flag: str | None = None
    reason: str | None = None
    write: str | None = None
    undo: str | None = None
    privilege: str = "root"


class Skipped(Value, frozen=True, kw_only=True):
    code: str
    reason: str


class Plan(Value, frozen=True, kw_only=True):
    """What `tune apply` would do. `instructions` are for people; `skipped` are findings of which nothing came;
    `notes` hold for the whole machine."""

    made_by: str = ""
    origin: str = ""
    intent: str = ""
    changes: tuple[Planned, ...] = ()
    instructions: tuple[Change, ...] = ()
    skipped: tuple[Skipped, ...] = ()
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


class Applied(Value, frozen=True, kw_only=True):
    """What `tune apply` did: `done` of each knob that was chosen, and the plan with all that was not. `late` was undone
    first, since nobody had confirmed it. All is undone again after `confirm_within_s` unless confirmed."""

    plan: Plan
    txid: str = ""
    done: tuple[Done, ...] = ()
    proofs: tuple[Proof, ...] | None = None
    late: tuple[Done, ...] = ()
    confirm_within_s: float | None = None


HoldingState = Literal["held", "waiting", "overdue"]
"""waiting: for its confirmation. overdue: nobody confirmed it; the next `tune` that writes undoes it first."""


class Holding(Value, frozen=True, kw_only=True):
    """A transaction of which something is still in force, or should be. Of a knob that several have set only the last
    counts."""

    txid: str
    began: str
    state: HoldingState
    left_s: float | None = None
    changes: tuple[Done, ...] = ()


class TuneStatus(Value, frozen=True, kw_only=True):
    """`drift` knobs read something else than what was set, or are gone. What ended with a reboot is none."""

    transactions: tuple[Holding, ...] = ()
    drift: int = 0


class Logged(Value, frozen=True, kw_only=True):
    """A transaction as it was written down. `damaged` says why it can't be read, and then there are no records."""

    txid: str
    state: Literal["open", "waiting", "undone", "damaged"]
    records: tuple[Record, ...] = ()
    damaged: str | None = None


class TuneLog(Value, frozen=True, kw_only=True):
    folder: str
    transactions: tuple[Logged, ...] = ()
