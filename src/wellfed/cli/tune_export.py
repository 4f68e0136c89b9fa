"""`wellfed tune export`: the changes of a plan for those who keep settings elsewhere."""

from pathlib import Path

import click

from wellfed.cli.common import check_targets, host_option, note, write_file
from wellfed.cli.config import ignores, intent_option

FORMS = ("sysctl", "systemd", "tmpfiles", "udev", "tuned", "ansible", "cmdline")


@click.command(
    "export",
    short_help="Write what `plan` shows for tools of your own.",
    epilog="Example: wellfed tune export sysctl -o 90-wellfed.conf",
)
@click.argument("form", type=click.Choice(FORMS), metavar="FORM")
@host_option
@intent_option
@click.option(
    "--allow",
    multiple=True,
    metavar="CODE",
    help="Also this one, which can do harm or is not known to help; repeatable.",
)
@click.option("--only", multiple=True, metavar="CODE", help="Nothing but this; repeatable.")
@click.option("--changes", metavar="FILE.toml", help="Your own list in place of what the checks find.")
@click.option(
    "-o",
    "place",
    type=click.Path(path_type=Path),
    metavar="FILE|FOLDER",
    help="Write here; below a folder each file has its own path.",
)
@click.option(
    "--no-redact", is_flag=True, help="Keep names and keys in the kernel's command line, also in FILE."
)
def command(
    form: str,
    host: str | None,
    intent: str,
    allow: tuple[str, ...],
    only: tuple[str, ...],
    changes: str | None,
    place: Path | None,
    no_redact: bool,
) -> None:
    """Write what `plan` shows as FORM, for those who keep settings elsewhere. Nothing is put in force.

    \b
    sysctl    a file of sysctl.d
    systemd   a unit that sets every kind of knob at start, and drop-ins
    tmpfiles  lines of tmpfiles.d for files below /sys
    udev      rules for disks, adapters and PCI devices
    tuned     a profile
    ansible   a play with all of it
    cmdline   kernel arguments for GRUB and systemd-boot, as text

    Each line has the check that asks for it and how its effect is known beside it; what FORM can't carry stands at the
    end, with the reason.
    """
    from wellfed import api

    if place is not None and not place.is_dir():
        check_targets([place])
    found = api.tune_export(
        form,
        host,
        intent=intent,
        changes=changes,
        allow=allow,
        only=only,
        ignore=ignores(),
        redact=place is not None and not no_redact,
    )
    if place is None:
        click.echo(found.text, nl=False)
    elif place.is_dir():
        for file in found.files:
            _write(place / file.path.lstrip("/"), file.text)
    elif len(found.files) > 1:
        raise click.UsageError(f"these are {len(found.files)} files; name a folder that is there: -o .")
    else:
        _write(place, found.text)
    note(f"{found.carried} carried, {len(found.left)} told in comments")


def _write(path: Path, text: str) -> None:
    from wellfed.model import WellfedError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text.encode())
    except OSError as error:
        raise WellfedError(
            f"can't write {path}: {error.strerror or error}", hint="name another place with -o"
        ) from error
    note(f"wrote {path}")
