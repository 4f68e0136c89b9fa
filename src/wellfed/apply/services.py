"""Units of systemd: whether one runs now, and whether it starts with the machine.

A value is two words, `started enabled`; one of them alone sets only that. A unit that was enabled, linked or masked
in a way that one command can't restore is not touched.
"""

import errno
import re
import shlex

from wellfed.apply import commands
from wellfed.apply.commands import Run
from wellfed.apply.knobs import FIRST, NETWORK, Plain, Refused
from wellfed.apply.root import Root
from wellfed.model import WellfedError

RUNNING = ("started", "stopped")
BOOT = ("enabled", "disabled", "masked")
"""States that we set, and so can put back. systemd has more (`static`, `generated`, `enabled-runtime`)."""

_ACTIVE = ("active", "activating", "reloading", "refreshing")
_UNIT = re.compile(r"[\w@:][\w@:.-]*")
_TYPES = (".service", ".timer", ".socket", ".path")
_NETWORK = re.compile(
    r"(sshd?|NetworkManager|systemd-(networkd|resolved)|networking|network|wicked\w*|dhc\w+|connman|iwd|wpa_supplicant|"
    r"firewalld|nftables|iptables|ufw|openvpn|wg-quick|tailscaled|cloud-init\w*|opensm|openibd|dropbear|ifup|netplan[\w-]*|"
    r"frr|bird6?|keepalived|openvswitch[\w-]*|ovs-vswitchd|ovn-controller|strongswan[\w-]*|ipsec|zerotier-one|cloudflared|"
    r"teleport|sssd|amazon-ssm-agent|google-guest-agent|waagent|walinuxagent|open-iscsi|iscsid?|multipathd)(@.*)?\.\w+"
)
_NEVER = re.compile(
    r"(dbus(-broker)?|systemd-(journald|logind|udevd|tmpfiles-\w+|remount-fs|machined|user-sessions)|init|emergency|rescue|"
    r"user@.*|getty@.*|serial-getty@.*|polkit)(-\w+)?\.\w+|"
    # These are orders: to start them is to end all else.
    r"(systemd|plymouth)-(poweroff|reboot|halt|kexec|exit|soft-reboot|suspend|hibernate|hybrid-sleep|suspend-then-hibernate)"
    r"\.\w+|kexec(-load)?\.\w+"
)


class ServiceKind(Plain):
    """`irqbalance`, or `apt-daily.timer`."""

    lasts = True  # whether it starts with the machine does; what runs is compared like the rest

    def __init__(self, run: Run = commands.run) -> None:
        self.run = run

    def unit(self, target: str) -> str:
        name = target if target.endswith(_TYPES) else f"{target}.service"
        if not _UNIT.fullmatch(name) or ".." in name:
            raise WellfedError(f"`{target}` is no service", hint='target = "irqbalance"')
        if _NEVER.fullmatch(name):
            raise WellfedError(
                f"`{target}` is not changed: the system rests on it", hint="take it off the list"
            )
        return name

    def key(self, target: str) -> str:
        return self.unit(target)

    def expand(self, root: Root, target: str) -> list[str]:
        self.unit(target)
        return [target]

    def order(self, target: str) -> int:
        return NETWORK if self.cuts_network(target) else FIRST

    def cuts_network(self, target: str) -> bool:
        return _NETWORK.fullmatch(self.unit(target)) is not None

    def read(self, root: Root, target: str) -> str | None:
        told = dict(
            line.partition("=")[::2]
            for line in self._run(root, "unit-state", target).splitlines()
            if "=" in line
        )
        if told.get("LoadState") == "not-found":
            raise OSError(errno.ENOENT, f"no unit {self.unit(target)}")
        if "ActiveState" not in told:
            raise OSError(errno.EIO, f"systemd says nothing of {self.unit(target)}")
        running = "started" if told["ActiveState"] in _ACTIVE else "stopped"
        return f"{running} {told.get('UnitFileState') or 'unnamed'}"

    def write(self, root: Root, target: str, value: str | None) -> None:
        if value is None:
            raise Refused(errno.EINVAL, "a unit always has a state")
        words = value.split()
        goal = next((word for word in words if word not in RUNNING), None)
        start = "started" in words
        now = (self.read(root, target) or "").split()
        if goal is not None and goal != now[1]:
            if goal not in BOOT:
                raise Refused(errno.EINVAL, f"no one command makes {self.unit(target)} {goal}")
            if now[1] == "masked":
                self._run(root, "unit-unmask", target)
                now = (self.read(root, target) or "").split()
            if goal != now[1] and goal != "masked":
                self._run(root, {"enabled": "unit-enable", "disabled": "unit-disable"}[goal], target)
        if start and now[0] != "started":
            self._run(root, "unit-start", target)
        if "stopped" in words and now[0] != "stopped":
            self._run(root, "unit-stop", target)
        if goal == "masked" and now[1] != "masked":
            self._run(root, "unit-mask", target)

    def same(self, target: str, a: str | None, b: str | None) -> bool:
        """One word alone stands for any state of the other kind."""
        if a is None or b is None:
            return a is b
        few, many = sorted((set(a.split()), set(b.split())), key=len)
        return few <= many

    def between(self, target: str, now: str | None, old: str | None, new: str) -> bool:
        """Several commands may be needed, and any of them may have been the last. `masked` is left by way of what
        was below the mask, which nobody can know beforehand."""
        words = set((now or "").split())
        known = set((old or "").split()) | set(new.split())
        return bool(words) and words <= (known | set(BOOT) if "masked" in known else known)

    def obstacle(self, root: Root, target: str, new: str) -> str | None:
        words = new.split()
        bad = [word for word in words if word not in (*RUNNING, *BOOT)]
        if bad or not words or len(words) > 2 or len({word in RUNNING for word in words}) != len(words):
            return f"a service is {', '.join((*RUNNING, *BOOT))}, or one of each as in `stopped disabled`, not {new}"
        running, boot = (self.read(root, target) or "").split()
        wanted = next((word for word in words if word in BOOT), None)
        if wanted is not None and wanted != boot and boot not in BOOT:
            return f"{self.unit(target)} is {boot}, which no one command would make it again"
        if "started" in words and running == "stopped" and boot == "masked" and wanted in (None, "masked"):
            return f"{self.unit(target)} is masked; `enabled started` takes the mask off"
        return None

    def shell(self, target: str, value: str | None) -> str:
        unit = shlex.quote(self.unit(target))
        verbs = {
            "started": "start",
            "stopped": "stop",
            "enabled": "enable",
            "disabled": "disable",
            "masked": "mask",
        }
        return " && ".join(
            f"sudo systemctl {verbs[word]} {unit}" for word in (value or "").split() if word in verbs
        )

    def _run(self, root: Root, name: str, target: str) -> str:
        real(root, self.run)
        return self.run(name, unit=self.unit(target))


def real(root: Root, run: Run) -> None:
    """Raises OSError when a program would act on this machine in place of the one below `root`."""
    if not root.is_real and run is commands.run:
        raise OSError(errno.EOPNOTSUPP, "programs act on this machine only")
