"""`wellfed tune`: change settings of this machine, with the way back on disk first."""

import re
import shlex
from typing import TYPE_CHECKING

import click

from wellfed.cli import tune_export
from wellfed.cli.common import Output, emit_shapes, emit_value, host_option, is_unicode, note, output_options
from wellfed.cli.config import ignores, intent_option
from wellfed.cli.progress import progress

if TYPE_CHECKING:
    from wellfed.model.change import TuneLog

_YES = click.option("--yes", is_flag=True, help="Also what restarts something, or outlives the boot.")
_ALLOW = click.option(
    "--allow",
    multiple=True,
    metavar="CODE",
    help="Also this one, which can do harm or is not known to help; repeatable.",
)
_ONLY = click.option("--only", multiple=True, metavar="CODE", help="Nothing but this; repeatable.")
_CHANGES = click.option(
    "--changes", metavar="FILE.toml", help="Your own list in place of what the checks find; see the guide."
)
_JOURNAL = click.option(
    "--journal",
    metavar="DIR",
    help="Where what is done is written down.  [default: /var/lib/wellfed/journal]",
)


def _seconds(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(s|sec|m|min|h)?", value.strip())
    if match is None:
        raise click.BadParameter(f"`{value}` is no time: 120s, 5min, 1h")
    return float(match[1]) * {"h": 3600.0, "m": 60.0, "min": 60.0}.get(match[2] or "s", 1.0)


_WITHIN = click.option(
    "--confirm-within",
    "confirm_within_s",
    callback=_seconds,
    metavar="TIME",
    help="Undo all of it after TIME (120s, 5min) unless `wellfed tune confirm` comes.",
)


@click.group("tune", epilog="Example: wellfed tune plan")
def command() -> None:
    """Change settings of this machine so that they can be undone.

    `plan` shows what would be written and writes nothing. `apply` does it: each old value is on disk before a new
    one is written, so that `undo` finds it whatever was killed meanwhile. All of it is for this boot only, except
    services and files of limits.
    """


@command.command(
    "plan",
    short_help="What `apply` would write, and the way back.",
    epilog="Example: wellfed tune plan --only MEM01 --only CPU07",
)
@host_option
@intent_option
@_YES
@_ALLOW
@_ONLY
@_CHANGES
@_WITHIN
@output_options("text", "json")
def plan(
    host: str | None,
    intent: str,
    yes: bool,
    allow: tuple[str, ...],
    only: tuple[str, ...],
    changes: str | None,
    confirm_within_s: float | None,
    output: Output,
) -> None:
    """Show exactly what `apply` with the same options would write, and how to undo it by hand.

    Each setting with old and new value, who else sets it here, and what it needs. Instructions are for what can't be
    written (boot parameters, firmware, your job's script). Nothing is changed; root is not needed.
    """
    from wellfed import api
    from wellfed.report import tune_json, tune_text

    found = api.tune_plan(
        host,
        intent=intent,
        yes=yes,
        allow=allow,
        only=only,
        changes=changes,
        confirm=confirm_within_s is not None,
        ignore=ignores(),
    )
    emit_value(
        tune_json.plan(found),
        output,
        text=lambda width, color: tune_text.plan(
            found, width=width, color=color, ascii_only=not is_unicode()
        ),
    )


@command.command(
    "apply",
    short_help="Make the changes of `plan`, through the journal.",
    epilog="Example: sudo wellfed tune apply --only MEM01 --prove",
)
@intent_option
@_YES
@_ALLOW
@_ONLY
@_CHANGES
@_WITHIN
@click.option("--prove", is_flag=True, help="Measure without and with each, in turn; keep what is better.")
@_JOURNAL
@output_options("text", "json")
def apply(
    intent: str,
    yes: bool,
    allow: tuple[str, ...],
    only: tuple[str, ...],
    changes: str | None,
    confirm_within_s: float | None,
    prove: bool,
    journal: str | None,
    output: Output,
) -> None:
    """Make the changes of `plan`, each through the journal, and say what became of it.

    Without more options only what is safe, undone at once, and known to help. The rest is listed with the option that
    would make it. What may cut the network is made only with --confirm-within. Exit code 1: some of it failed.
    """
    from wellfed import api
    from wellfed.report import tune_json, tune_text

    try:
        with progress() as say:
            done = api.tune_apply(
                intent=intent,
                yes=yes,
                allow=allow,
                only=only,
                changes=changes,
                journal=journal,
                confirm_within_s=confirm_within_s,
                prove=prove,
                ignore=ignores(),
                progress=say,
            )
    except KeyboardInterrupt:
        note(f"what was changed until now stays: wellfed tune status{_where(journal)}")
        raise
    emit_value(
        tune_json.applied(done),
        output,
        text=lambda width, color: tune_text.applied(
            done, where=_where(journal), width=width, color=color, ascii_only=not is_unicode()
        ),
    )
    outcomes = [one.outcome for one in done.done] + [proof.outcome for proof in done.proofs or ()]
    _leave("failed" in outcomes)


@command.command(
    "status", short_help="Read again what was set.", epilog="Example: wellfed tune status --format json"
)
@_JOURNAL
@output_options("text", "json")
def status(journal: str | None, output: Output) -> None:
    """Read again what was set. Exit code 1: some of it reads something else now, or is gone.

    Says who else sets it where that is known. Writes nothing.
    """
    from wellfed import api
    from wellfed.report import tune_json, tune_text

    found = api.tune_status(journal)
    emit_value(
        tune_json.status(found),
        output,
        text=lambda width, color: tune_text.status(
            found, where=_where(journal), width=width, color=color, ascii_only=not is_unicode()
        ),
    )
    _leave(found.drift > 0)


@command.command("undo", short_help="Put back the values from before.", epilog="Example: wellfed tune undo")
@click.argument("txid", required=False)
@click.option("--force", is_flag=True, help="Also over what somebody else has set since.")
@_JOURNAL
@output_options("text", "json")
def undo(txid: str | None, force: bool, journal: str | None, output: Output) -> None:
    """Put back the values from before the first change, or those from before transaction TXID.

    What reads something else than what was set here is left alone and said. Exit code 1: not all is back.
    """
    from wellfed import api
    from wellfed.report import tune_json, tune_text

    done = api.tune_undo(txid, force=force, journal=journal)
    emit_value(
        tune_json.undone(done),
        output,
        text=lambda width, color: tune_text.undone(
            done, where=_where(journal), width=width, color=color, ascii_only=not is_unicode()
        ),
    )
    _leave(any(one.outcome in ("drift", "failed") for one in done))


@command.command(
    "confirm", short_help="Keep what --confirm-within would undo.", epilog="Example: wellfed tune confirm"
)
@click.argument("txid", required=False)
@_JOURNAL
@output_options("text", "json")
def confirm(txid: str | None, journal: str | None, output: Output) -> None:
    """Keep what was applied with --confirm-within: you are still there, so the network is too."""
    from wellfed import api
    from wellfed.report import tune_json, tune_text

    kept = api.tune_confirm(txid, journal=journal)
    emit_value(
        tune_json.confirmed(kept),
        output,
        text=lambda width, color: tune_text.confirmed(kept, width=width, color=color),
    )


@command.command(
    "log",
    short_help="All that was written down, for an audit.",
    epilog="Example: wellfed tune log --format json --no-redact > audit.json",
)
@_JOURNAL
@output_options("text", "json", "md", "html", save=False)
def log(journal: str | None, output: Output) -> None:
    """All that was ever written down, record by record, for an audit.

    As a page (html, md): what became of each setting, what was measured, who confirmed it, and whether each record
    follows from the one before. In JSON, --no-redact keeps the checksums that chain the records and the names of
    boots. Exit code 1: a transaction is damaged.
    """
    import msgspec

    from wellfed import api
    from wellfed.model.change import TuneLog
    from wellfed.model.redact import redact_tree
    from wellfed.report import tune_text

    found = api.tune_log(journal)
    # Drop-ins hold environments, and an audit is there to be passed on, in whichever form.
    shown = msgspec.convert(redact_tree(msgspec.to_builtins(found)), TuneLog) if output.redact else found
    damaged = any(one.damaged for one in found.transactions)
    emit_shapes(
        output,
        lambda shape: _log_shape(found, journal, shape, output.redact),
        text=lambda width, color: tune_text.log(shown, width=width, color=color, ascii_only=not is_unicode()),
    )
    _leave(damaged)


def _log_shape(found: "TuneLog", journal: str | None, shape: str, redact: bool) -> bytes:
    import msgspec

    from wellfed import api
    from wellfed.model.redact import redact_tree
    from wellfed.report import journal_page, tune_json

    if shape == "json":
        tree = tune_json.log(found)
        return (
            msgspec.json.format(msgspec.json.encode(redact_tree(tree) if redact else tree), indent=2) + b"\n"
        )
    # What knobs read now can't be asked of a damaged journal.
    damaged = any(one.damaged for one in found.transactions)
    now = None if damaged else api.tune_status(journal)
    return journal_page.journal_page(found, shape, status=now, redact=redact).encode()


def _where(journal: str | None) -> str:
    """The option that names the same journal again."""
    return "" if journal is None else f" --journal {shlex.quote(journal)}"


def _leave(is_bad: bool) -> None:
    if is_bad:
        click.get_current_context().exit(1)


command.add_command(tune_export.command)
