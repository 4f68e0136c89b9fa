"""`wellfed check`: look at the machine and judge it."""

import click

from wellfed.cli.common import Output, emit, fail_on_option, host_option, output_options
from wellfed.cli.config import ignores, intent_option, tell_unused


@click.command("check", epilog="Example: wellfed check --fail-on warning --save box.case")
@host_option
@intent_option
@fail_on_option("error")
@output_options("text", "json", "md", "html")
@click.option(
    "--evidence",
    multiple=True,
    metavar="FILE",
    help="What a tool said of the machine: JSON of `dcgmi diag -j`, a kernel log (dmesg, journalctl -k, "
    "syslog), a log of the fabric manager, `nvidia-smi -q` or `nvidia-smi nvlink -s`; repeatable.",
)
def command(host: str | None, intent: str, fail_on: str, output: Output, evidence: tuple[str, ...]) -> None:
    """Judge the machine: pass, finding, or not judged and why.

    Nothing is changed and nothing is measured. Findings set aside in wellfed.toml are listed with their
    reason. `wellfed explain CODE` shows what a check looks at.
    """
    from wellfed import api

    ignore = ignores()
    case = api.check(host, intent=intent, ignore=ignore, evidence=evidence)
    tell_unused(case, ignore)
    emit(case, output, kind="check", fail_on=fail_on)
