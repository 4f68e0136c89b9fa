"""The Case: all that one look knows, saved as one file."""

import gzip
import io
import zlib
from typing import Any

import msgspec

from wellfed.model.base import Value
from wellfed.model.ceiling import Ceiling
from wellfed.model.change import Change
from wellfed.model.errors import WellfedError
from wellfed.model.flight import HangTold
from wellfed.model.held import MemoryHeld
from wellfed.model.machine import Machine
from wellfed.model.ranks import RanksStudy, Stragglers
from wellfed.model.run import RunReport
from wellfed.model.trace import RankTrace, TraceWarning
from wellfed.model.verdict import Verdict

SCHEMA = 1
MAX_CASE_BYTES = 256 << 20
MAX_CASE_VALUES = 8_000_000
"""Separators of a JSON text, and so about its values: each takes some 60 bytes of memory, however short it is."""


class Headline(Value, frozen=True, kw_only=True):
    """What limits this work, in the user's unit: one sentence, the number and its unit."""

    text: str
    value: float | None = None
    unit: str | None = None
    next_command: str | None = None


class Case(Value, frozen=True, kw_only=True):
    """`made_by` is the verb and version; `redacted` says whether hostnames, addresses, serials, UUIDs and
    environment values were taken out. `ignored` are findings that `wellfed.toml` sets aside, with its reason
    in `message`. Of several ranks `together` is what their collectives say, `rank_verdicts` holds each rank's own
    verdicts where `verdicts` has one for all, and `pipeline` is what records of a pipeline's operations say. `run` is what a watched command left, `memory`
    what snapshots and traces say of each device's memory, `hang` what the flight records of all ranks say together.
    `workload` and `traffic` are filled by the planning verbs."""

    schema: int = SCHEMA
    made_by: str = ""
    made_at: str = ""
    redacted: bool = False
    machine: Machine | None = None
    ceilings: tuple[Ceiling, ...] = ()
    ranks: tuple[RankTrace, ...] = ()
    warnings: tuple[TraceWarning, ...] = ()
    headline: Headline | None = None
    verdicts: tuple[Verdict, ...] = ()
    ignored: tuple[Verdict, ...] = ()
    rank_verdicts: tuple[Verdict, ...] = ()
    together: RanksStudy | None = None
    pipeline: Stragglers | None = None
    memory: tuple[MemoryHeld, ...] = ()
    hang: HangTold | None = None
    run: RunReport | None = None
    changes: tuple[Change, ...] = ()
    workload: dict[str, Any] | None = None
    traffic: dict[str, Any] | None = None

    def counts(self) -> dict[str, int]:
        """How many verdicts of each kind."""
        counts = {"pass": 0, "finding": 0, "not-judged": 0}
        for verdict in self.verdicts:
            counts[verdict.verdict] += 1
        return counts


def encode_case(case: Case) -> bytes:
    """The bytes of a case file: gzipped JSON, the same bytes for the same case."""
    # in two steps, since the encoder orders text keys only
    plain = msgspec.to_builtins(case, str_keys=True, order="deterministic")
    return gzip.compress(msgspec.json.encode(plain), mtime=0)


def decode_case(data: bytes) -> Case:
    """A case from its file's bytes, gzipped or plain. Raises WellfedError when it is not one."""
    if data[:2] == b"\x1f\x8b":
        data = _gunzip_capped(data)
    if len(data) > MAX_CASE_BYTES or sum(map(data.count, (b",", b"[", b"{"))) > MAX_CASE_VALUES:
        raise WellfedError(
            f"case file with more than {MAX_CASE_BYTES >> 20} MiB or {MAX_CASE_VALUES:,} values",
            hint="this is not a case wellfed wrote",
        )
    try:
        case = msgspec.json.decode(data, type=Case)
    except RecursionError as error:
        raise WellfedError(
            "not a case file: nested too deep", hint="wellfed doctor --save my.case"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WellfedError(f"not a case file: {error}", hint="wellfed doctor --save my.case") from error
    if case.schema != SCHEMA:
        raise WellfedError(
            f"case schema {case.schema} is not {SCHEMA}",
            hint="read it with the version of wellfed that wrote it",
        )
    return case


def _gunzip_capped(data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            out = stream.read(MAX_CASE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise WellfedError(f"damaged case file: {error}", hint="save it again with --save") from error
    if len(out) > MAX_CASE_BYTES:
        raise WellfedError(
            f"case file unpacks to more than {MAX_CASE_BYTES >> 20} MiB",
            hint="this is not a case wellfed wrote",
        )
    return out
