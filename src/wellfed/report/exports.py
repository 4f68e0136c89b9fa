"""Changes as files for those who keep settings in sysctl.d, systemd, tmpfiles.d, udev, tuned, Ansible or the kernel's
command line.

Each form takes changes in the order in which they are to be made and keeps it, says beside each line which check asks
for it and how its effect is known, and names at its end what it can't carry and why. Nothing is put anywhere by us.
"""

from collections.abc import Callable, Sequence

from wellfed.model import Change
from wellfed.model.base import replace
from wellfed.model.change import Plan, Planned
from wellfed.report.export_files import sysctl_d, tmpfiles, tuned_profile, udev
from wellfed.report.export_parts import Export, File, Left, Unfit, told
from wellfed.report.export_units import ansible, systemd_units
from wellfed.report.kernel_arguments import kernel_arguments

__all__ = [
    "FORMS",
    "Export",
    "File",
    "Left",
    "Unfit",
    "ansible",
    "export",
    "kernel_arguments",
    "of_plan",
    "sysctl_d",
    "systemd_units",
    "tmpfiles",
    "tuned_profile",
    "udev",
]

_MAKERS: dict[str, Callable[..., Export]] = {
    "sysctl": sysctl_d,
    "systemd": systemd_units,
    "tmpfiles": tmpfiles,
    "udev": udev,
    "tuned": tuned_profile,
    "ansible": ansible,
}
FORMS = (*_MAKERS, "cmdline")


def export(
    form: str,
    changes: Sequence[Change],
    *,
    left: Sequence[Left] = (),
    cmdline: Sequence[str] | None = None,
    arch: str | None = None,
    made_by: str = "",
) -> Export:
    """The changes in one of FORMS. `left` are told at the end with what the form itself can't carry; `cmdline` and `arch`
    are those of the machine, for kernel arguments."""
    if form == "cmdline":
        return kernel_arguments(changes, cmdline, arch=arch, left=left, made_by=made_by)
    return _MAKERS[form](changes, left=left, made_by=made_by)


_GONE = ("missing", "refused")


def of_plan(plan: Plan) -> tuple[list[Change], list[Left]]:
    """What of a plan is worth keeping, targets as they were asked for where all they stand for gets one value, and what is
    not and why. What is set already is kept too: it may be so until the next boot only."""
    left: list[Left] = []
    groups: dict[tuple[str, str, str], list[Planned]] = {}
    for one in plan.changes:
        groups.setdefault((one.change.code, one.change.kind, one.asked), []).append(one)
    kept: list[Change] = []
    for (_, _, asked), group in groups.items():
        good: list[Planned] = []
        for one in group:
            if not one.chosen:
                left.append(
                    Left(told(one.change), f"it can do harm, or nobody has seen that it helps: {one.flag}")
                )
            elif one.state in _GONE:
                left.append(Left(told(one.change), one.reason or f"it is {one.state} here"))
            else:
                good.append(one)
        if good and len(good) == len(group) and len({one.change.new for one in good}) == 1:
            olds = {one.change.old for one in good}
            first = good[0].change
            kept.append(replace(first, target=asked, old=first.old if len(olds) == 1 else None))
        else:
            kept += [one.change for one in good]
    left += [Left(one.code, one.reason) for one in plan.skipped]
    return kept, left
