"""Changes as files for those who keep settings in sysctl.d, systemd, tmpfiles.d, udev, tuned, Ansible or the kernel's
command line.

Each form takes changes in the order in which they are to be made and keeps it, says beside each line which check asks
for it and how its effect is known, and names at its end what it can't carry and why. Nothing is put anywhere by us.
"""

from collections.abc import Callable, Sequence

from wellfed.model import Change
from wellfed.report.export_files import sysctl_d, tmpfiles, tuned_profile, udev
from wellfed.report.export_parts import Export, File, Left, Unfit
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
