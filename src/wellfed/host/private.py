"""A tape without names, addresses and secrets: the same name becomes the same pseudonym everywhere, also in paths,
so that a link to a renamed folder still leads there and a control group's limits are still found."""

import functools
import json
import posixpath
import re
from collections.abc import Callable
from typing import Any

import msgspec

from wellfed.host.door import Reading
from wellfed.host.storage import unescape
from wellfed.host.tape import RecordingHost
from wellfed.model import places
from wellfed.model.redact import Redactor

# Their names say nothing about people, and their form (NAME=value lines) would make redaction empty them.
_PLAIN_COMMANDS = frozenset({"systemctl-services", "nvcc-version", "systemd-detect-virt"})
_LOGS = frozenset({"dmesg", "journal-kernel", "fabricmanager-log"})
_VERSION_FILES = ("/osrelease", "/version", "fw_ver", "vbios_version")
_USUAL_INTERFACE = re.compile(
    r"lo|bonding_masters|oob_net\d|docker_gwbridge|kube-ipvs\d|en[osxpP][\w.]{1,14}"
    r"|(?:eth|en|ib|bond|team|docker|br|veth|cali|cilium|flannel|cni|kube-bridge|nodelocaldns|vxlan|geneve|gre|gretap|erspan"
    r"|sit|tunl|ip6tnl|tun|tap|wg|tailscale|virbr|vnet|ifb|dummy|usb|wlan|wl|hsn|rdma|efa|lxc|lxdbr|podman|vmbr|vlan|macvlan"
    r"|tmfifo_net|mlx|mic)[-_.]?[0-9a-f]{0,12}(?:np\d+)?(?:[.@][\w.]{1,15})?"
)
# What of /proc/self/status bears on performance; the rest numbers processes, users and groups.
_STATUS_LINE = re.compile(
    r"(?:Cap|NoNewPrivs|Seccomp|Speculation|Cpus_allowed|Mems_allowed|THP_|VmLck|VmPin|Name|Threads)"
)
_PROCESS_NAMES = re.compile(
    r"(<process_name>|\"(?:process_)?name\"\s*:\s*\"|\"PID\d+\"\s*:\s*\")([^<\",]+)(?=[<\",])"
)


def redacted(tape: RecordingHost) -> RecordingHost:
    """The tape as it may be shown to others."""
    redactor = Redactor()
    _learn(redactor, tape)
    path = functools.partial(redactor.path, addresses=False)
    clean = RecordingHost(tape.inner)
    clean.links = {path(at): _target(redactor, at, target) for at, target in tape.links.items()}
    clean.files = {path(at): _content(redactor, at, text) for at, text in tape.files.items()}
    clean.readings = {path(at): _detail(redactor, reading) for at, reading in tape.readings.items()}
    clean.listings = {
        path(at): tuple(sorted(path(f"{at.rstrip('/')}/{name}").rpartition("/")[2] for name in names))
        for at, names in tape.listings.items()
    }
    clean.present = set(map(path, tape.present))
    clean.commands = {name: _answer(redactor, name, reading) for name, reading in tape.commands.items()}
    clean.probes = {name: _probe(redactor, reading) for name, reading in tape.probes.items()}
    clean.nvml_answer = _tree(redactor, tape.nvml_answer)
    clean.environment = redactor.environment(tape.environment or {})
    return clean


def _learn(redactor: Redactor, tape: RecordingHost) -> None:
    """The names that this machine is known by, so that they go wherever they stand."""
    for name in ("hostname", "nodename"):
        redactor.add_host(tape.files.get(f"/proc/sys/kernel/{name}", "").strip())
    for texts in (tape.files.values(), (reading.text or "" for reading in tape.commands.values())):
        for text in texts:
            redactor.learn(text)
    for name, value in (tape.environment or {}).items():
        redactor.learn_variable(name, value)
    redactor.add_release(tape.files.get("/proc/sys/kernel/osrelease", "").strip())
    told = re.search(r"^Linux version (\S+)", tape.files.get("/proc/version", ""))
    redactor.add_release(told[1] if told else "")
    for name in tape.listings.get("/sys/class/net", ()):
        if not _USUAL_INTERFACE.fullmatch(name):
            redactor.add_name("nic", name)


def _target(redactor: Redactor, at: str, target: str) -> str:
    """Where a link leads. A relative one through a renamed folder becomes absolute; those of the kernel's own
    trees lead nowhere private, and in some archives outside of the tree."""
    if target.startswith("/"):
        return redactor.path(target, addresses=False)
    if at.startswith(("/sys/", "/proc/")):
        return "/".join(redactor.text(part, addresses=False) for part in target.split("/"))
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(at), target))
    return target if (hidden := redactor.path(whole, addresses=False)) == whole else hidden


def _detail(redactor: Redactor, reading: Reading) -> Reading:
    return msgspec.structs.replace(reading, source="", detail=_free(redactor, reading.detail))


def _free(redactor: Redactor, text: str | None, *, addresses: bool = True) -> str | None:
    """Free text: whatever has the form of a name, an address, a secret or a path."""
    return (
        None if text is None else places.hide_paths(redactor.text(text, addresses=addresses), redactor.name)
    )


# -- files -------------------------------------------------------------------------------------------------


def _content(redactor: Redactor, at: str, text: str) -> str:
    for form, clean in _CONTENT:
        if form.fullmatch(at):
            return clean(redactor, text)
    if at.startswith("/sys/"):
        return redactor.text(text, addresses=not at.endswith(_VERSION_FILES))
    return _free(redactor, text, addresses=not at.endswith(_VERSION_FILES)) or ""


def _mounts(redactor: Redactor, text: str) -> str:
    """`source path fs options 0 0`."""
    return "\n".join(" ".join(_mount(redactor, line.split(), 0, 1, 2, (3,))) for line in text.splitlines())


def _mountinfo(redactor: Redactor, text: str) -> str:
    """`id parent device root path options tags - fs source options`."""
    lines = []
    for line in text.splitlines():
        words = line.split()
        if "-" in words and len(words) > (dash := words.index("-")) + 3 and dash >= 6:
            words = _mount(redactor, words, dash + 2, 4, dash + 1, (5, dash + 3))
            words[3] = _escape(redactor.path(unescape(words[3])))
            lines.append(" ".join(words))
    return "\n".join(lines)


def _mount(
    redactor: Redactor, words: list[str], source: int, path: int, fs: int, options: tuple[int, ...]
) -> list[str]:
    if len(words) <= max(source, path, fs, *options):
        return []
    words[source] = _escape(redactor.mount_source(unescape(words[source]), words[fs]))
    words[path] = _escape(redactor.path(unescape(words[path])))
    for place in options:
        words[place] = ",".join(map(places.hide_option, words[place].split(",")))
    return words


def _escape(word: str) -> str:
    return re.sub(r"[\s\\]", lambda match: f"\\{ord(match[0]):03o}", word)


def _groups(redactor: Redactor, text: str) -> str:
    """`4:cpu,cpuacct:/path` or a path alone."""
    lines = (re.fullmatch(r"((?:\d+:[^:]*:)?)(/.*)", line) for line in text.splitlines())
    return "\n".join(f"{line[1]}{redactor.path(line[2])}" for line in lines if line)


def _routes(redactor: Redactor, text: str) -> str:
    """The default routes only, without their gateways: the tables print addresses in hexadecimal."""
    kept = []
    for line in redactor.text(text).splitlines():
        words = line.split()
        if words[:1] == ["Iface"]:
            kept.append(line)
        elif len(words) > 7 and words[1] == words[7] == "00000000":
            kept.append("\t".join((*words[:2], "00000000", *words[3:])))
        elif len(words) > 9 and (words[0], words[1]) == ("0" * 32, "00"):
            kept.append(" ".join((*words[:4], "0" * 32, *words[5:])))
    return "\n".join(kept)


def _status(redactor: Redactor, text: str) -> str:
    lines = [line for line in text.splitlines() if _STATUS_LINE.match(line)]
    name = re.compile(r"(?<=^Name:\t).*")
    return "\n".join(
        name.sub(lambda match: places.hide_process(match[0], redactor.name), line) for line in lines
    )


def _modules(redactor: Redactor, text: str) -> str:
    """Without the addresses at which they are loaded: that is this boot's secret."""
    return re.sub(r"\b0x[0-9a-f]{8,16}\b", "0x0000000000000000", redactor.text(text))


def _kernel_config(redactor: Redactor, text: str) -> str:
    """Switches and numbers; its strings name builders, keys and default hosts."""
    return "\n".join(re.findall(r"^CONFIG_\w+=(?:[ymn]|-?\d+|0x[0-9a-f]+)$", text, re.MULTILINE))


def _profile_name(redactor: Redactor, name: str) -> str:
    """The name of a profile of tuned, as in the path of its folder."""
    return redactor.path(f"/etc/tuned/{name}", addresses=False).rpartition("/")[2]


def _active_profiles(redactor: Redactor, text: str) -> str:
    return " ".join(_profile_name(redactor, name) for name in text.split() if "/" not in name)


def _profile(redactor: Redactor, text: str) -> str:
    """What is left of `tuned.conf`: knobs, and other profiles that it includes."""

    def included(match: re.Match[str]) -> str:
        names = (name.strip() for name in match[2].split(","))
        return match[1] + ",".join(_profile_name(redactor, name) for name in names if "/" not in name)

    return re.sub(r"^(\s*include\s*=)(.*)$", included, redactor.text(text), flags=re.MULTILINE)


_CONTENT: tuple[tuple[re.Pattern[str], Callable[[Redactor, str], str]], ...] = (
    (re.compile(r"/proc/(?:\w+/)?mounts|/etc/mtab"), _mounts),
    (re.compile(r"/proc/\w+/mountinfo"), _mountinfo),
    (re.compile(r"/proc/\w+/(?:cgroup|cpuset)"), _groups),
    (re.compile(r"/proc/cmdline"), Redactor.parameters),
    (re.compile(r"/proc/\d+/comm"), lambda redactor, text: places.hide_process(text.strip(), redactor.name)),
    (re.compile(r"/proc/(?:\w+/)?net/(?:ipv6_)?route"), _routes),
    (re.compile(r"/proc/self/status"), _status),
    (re.compile(r"/proc/modules"), _modules),
    (re.compile(r"/boot/config-.*"), _kernel_config),
    (re.compile(r"/(?:etc|var/lib)/tuned/active_profile"), _active_profiles),
    (re.compile(r".*/tuned/.*/tuned\.conf"), _profile),
)


# -- commands, probes, NVML --------------------------------------------------------------------------------


def _answer(redactor: Redactor, name: str, reading: Reading) -> Reading:
    if name in _PLAIN_COMMANDS or reading.text is None:
        return msgspec.structs.replace(reading, detail=_free(redactor, reading.detail))
    text = redactor.log(reading.text) if name in _LOGS else _free(redactor, reading.text) or ""
    if "smi" in name:
        text = _PROCESS_NAMES.sub(lambda match: match[1] + _program(redactor, match[2]), text)
    return msgspec.structs.replace(reading, text=text, detail=_free(redactor, reading.detail))


def _program(redactor: Redactor, command: str) -> str:
    """The program of a command line, without its folder and arguments."""
    words = command.split()
    return places.hide_process(words[0].rpartition("/")[2], redactor.name) if words else command


def _probe(redactor: Redactor, reading: Reading) -> Reading:
    """A probe answers in JSON, where paths stand whole."""
    text = reading.text
    if text is not None:
        try:
            text = json.dumps(_tree(redactor, json.loads(text)), sort_keys=True)
        except (ValueError, RecursionError):  # of a damaged recording
            text = _free(redactor, text)
    return msgspec.structs.replace(reading, text=text, detail=_free(redactor, reading.detail))


def _tree(redactor: Redactor, value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {
            redactor.path(name) if name.startswith("/") else name: _tree(
                redactor, item, "process" if key == "processes" and name == "name" else name
            )
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_tree(redactor, item, key) for item in value]
    if not isinstance(value, str):
        return value
    if key == "process":
        return _program(redactor, value)
    if "serial" in key.lower():
        return redactor.text(f"serial: {value}").removeprefix("serial: ")
    if value.startswith("/"):
        return redactor.path(value)
    return redactor.text(value, addresses="version" not in key.lower())
