"""Saving a look: all that the readers saw, and some files that later readers will want, as one tar.

`root/PATH` holds files and links, `commands/NAME.json`, `probes.json`, `nvml.json` and `environ.json` the
answers, `index.json` what a tar cannot say (listings, refusals), `manifest.json` the format and the counts. The
same host gives the same bytes. Replayed, it gives the same Machine. `tape.py` takes the answers, `private.py` takes the
names out of them."""

import datetime
import gzip
import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from wellfed._version import __version__
from wellfed.host.archive import MAX_MEMBER_BYTES
from wellfed.host.assemble import readers
from wellfed.host.door import COMMANDS, PROBES, Host
from wellfed.host.private import redacted
from wellfed.host.recorded import FORMAT, Index, Manifest
from wellfed.host.tape import RecordingHost, read_extra
from wellfed.model.base import Value
from wellfed.model.errors import WellfedError

MAX_RECORD_BYTES = 128 << 20


class RecordSummary(Value, frozen=True, kw_only=True):
    """What went into a recording. `refused` files are there but could not be read here."""

    path: str
    files: int
    links: int
    commands: int
    probes: int
    refused: int
    bytes: int
    redacted: bool


def record(
    host: Host, path: str | os.PathLike[str], *, redact: bool = True, now: str | None = None
) -> RecordSummary:
    """Looks at everything and writes `path` (`.tar`, or `.tar.gz` and `.tgz` for a packed one). Redacted unless
    told otherwise. `now` is the ISO time for the manifest. Raises WellfedError when the file cannot be
    written."""
    target = Path(path)
    if not target.name.endswith((".tar", ".tar.gz", ".tgz")):
        raise WellfedError(
            f"`{target}` is no name for a recording", hint=f"wellfed inspect --record {target.stem}.tar"
        )
    tape = RecordingHost(host)
    for reader in readers().values():
        try:
            reader(tape)
        except Exception:  # noqa: BLE001 - as in look(): what one reader breaks on is the very box we want to have
            continue
    for name, command in COMMANDS.items():
        if "{item}" not in " ".join(
            command.argv
        ):  # the others were asked by the readers, who know the devices
            tape.run(name)
    for name in PROBES:
        tape.probe(name)
    tape.nvml()
    tape.environ()
    read_extra(tape)
    tape.narrow()
    saved = redacted(tape) if redact else tape
    made_at = now or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    members = _members(saved, made_at, redact)
    data = _tar_bytes(members, saved.links)
    if target.name.endswith("gz"):
        data = gzip.compress(data, 6, mtime=0)
    _write(target, data)
    counts = _counts(saved)
    return RecordSummary(path=str(target), bytes=len(data), redacted=redact, **counts)


# -- the tar -----------------------------------------------------------------------------------------------


def _members(tape: RecordingHost, made_at: str, redact: bool) -> dict[str, bytes]:
    """Content by member name. What a folder listing or a link already says is not said twice."""
    index = Index(
        listings=tape.listings,
        readings={at: msgspec.structs.replace(reading, source="") for at, reading in tape.readings.items()},
        present=tuple(sorted(tape.present - tape.files.keys())),
    )
    counts = _counts(tape)
    manifest = Manifest(format=FORMAT, wellfed=__version__, made_at=made_at, redacted=redact, counts=counts)
    members = {
        "manifest.json": _json(manifest),
        "index.json": _json(index),
        "probes.json": _json(tape.probes),
        "nvml.json": _json(tape.nvml_answer or {}),
        "environ.json": _json(tape.environment or {}),
        **{f"commands/{name}.json": _json(reading) for name, reading in tape.commands.items()},
        **{f"root{at}": text.encode("utf-8", "replace") for at, text in tape.files.items()},
    }
    if sum(map(len, members.values())) > MAX_RECORD_BYTES:
        raise WellfedError("this machine shows more than 128 MiB of facts", hint="please report it")
    return {name: data[:MAX_MEMBER_BYTES] for name, data in members.items()}


def _counts(tape: RecordingHost) -> dict[str, int]:
    return {
        "files": len(tape.files),
        "links": len(tape.links),
        "commands": sum(reading.status == "ok" for reading in tape.commands.values()),
        "probes": sum(reading.status == "ok" for reading in tape.probes.values()),
        "refused": sum(reading.status == "denied" for reading in tape.readings.values()),
    }


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _tar_bytes(members: dict[str, bytes], links: dict[str, str]) -> bytes:
    out = io.BytesIO()
    linked = {f"root{at}": target for at, target in links.items()}
    # The manifest comes first, so that a file cut short still says what it is; `root` exists even when empty.
    names = sorted({"root", *members, *linked} - {"manifest.json"})
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("manifest.json", *names):
            info = tarfile.TarInfo(name)
            info.mode = 0o644
            if name in linked:
                info.type, info.linkname = tarfile.SYMTYPE, linked[name]
                tar.addfile(info)
            elif name in members:
                info.size = len(members[name])
                tar.addfile(info, io.BytesIO(members[name]))
            else:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
    return out.getvalue()


def _write(target: Path, data: bytes) -> None:
    """Whole or not at all."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:32]}.", dir=target.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except OSError as error:
        raise WellfedError(
            f"cannot write the recording `{target}`: {error.strerror}", hint=f"ls -ld {target.parent}"
        ) from error
