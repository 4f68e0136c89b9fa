"""Taking names, addresses and secrets out of what is saved, and leaving the numbers in.

A `Redactor` gives each name one pseudonym (`host-1`, `ipv4-2`, `GPU-uuid-1`), the same wherever it stands, so
that a redacted case can still be read: two findings on one adapter are still on one adapter. Secrets have
no pseudonym: they become `[redacted]`. Redacting twice changes nothing.

What goes: hostnames that are known, IPv4 and IPv6 and hardware addresses, GUIDs, UUIDs, serial numbers, user
names in home paths, e-mail addresses, tokens, keys and passwords, long random strings, and the values of
environment variables (`environment.py` says which stay). What stays: numbers, versions, kernel names, GPU
names, PCI addresses, paths under /sys and /proc, loopback and any-address.
"""

import functools
import ipaddress
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from wellfed.model import patterns as p
from wellfed.model import places
from wellfed.model.base import replace
from wellfed.model.case import Case
from wellfed.model.environment import PSEUDONYM, REDACTED, is_harmless, is_performance, is_sensitive, may_keep

_NOTHING = frozenset({"", "n/a", "[n/a]", "none", "null", "unknown", "not specified", "default string", "0"})
# As hostnames these name nobody, and hiding the word would spoil every `vm.swappiness`.
_GENERIC_HOSTS_TEXT = """
    localhost localhost.localdomain (none) none unknown vm host server node gpu cpu nvidia cuda torch linux ubuntu debian
    kernel docker container pod worker main master train test dev box
"""
_GENERIC_HOSTS = frozenset(_GENERIC_HOSTS_TEXT.split())
_GENERIC_USERS = frozenset({"root", "*", ".", "..", "$USER", "${USER}", "%s", "..."})

_SERVICE_USERS = frozenset(
    {"admin", "build", "centos", "debian", "docker", "nvidia", "power", "python", "runner", "share", "ubuntu"}
)

_HOST_KEYS = frozenset({"hostname", "host", "nodename", "node_name", "host_name", "fqdn"})
_ENV_KEYS = frozenset({"env", "environ", "environment", "environment_variables", "env_vars", "envs"})
_VERSION_KEYS = re.compile(
    r"version|driver|vbios|firmware|cudnn|nccl|cuda|rocm|glibc|torch|python|release|microcode"
)
# Names of kernels and operators, and references to public places: neither holds an address of the user's.
_CODE_KEYS = frozenset({"name", "kernel", "op", "ops", "kernels", "sources", "peak_source", "band_source"})
# Facts whose values and sources are paths of the owner's choosing.
_PLACE_KEYS = re.compile(
    r"mounts|container\.|memory\.swap_devices|software\.(?:python|torch|nccl|cud|packages)"
)
_PROSE_KEYS = frozenset(
    {"message", "remedy", "why", "title", "method", "verify", "restore", "hint", "next_command"}
)


class Redactor:
    """Consistent pseudonyms for one case or one recording. Give the names you know; what else it must hide
    it finds by form. `learn` a text first when a name in it must also go from texts seen earlier."""

    def __init__(
        self, *, hostnames: Iterable[str] = (), users: Iterable[str] = (), secrets: Iterable[str] = ()
    ) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._known: dict[str, str] = {}
        self._known_pattern: re.Pattern[str] | None = None
        self._users: set[str] = set()
        self._done: dict[tuple[str, bool, bool], str] = {}
        for host in hostnames:
            self.add_host(host)
        for user in users:
            self.add_user(user)
        for secret in secrets:
            self.add_secret(secret)

    # -- names that are known --

    def add_host(self, name: str) -> None:
        """Hide a hostname and, of a full one, its first label and its domain."""
        name = name.strip().rstrip(".")
        if name.lower() in _GENERIC_HOSTS or len(name) < 2 or PSEUDONYM.fullmatch(name) or name.isdigit():
            return
        if _is_address(name):
            return
        pseudonym = self.name("host", name.partition(".")[0])
        self._know(name, pseudonym)
        short, _, domain = name.partition(".")
        if domain:
            self._know(short, pseudonym)
            if "." in domain:
                self._know(domain, "domain.invalid")

    def add_user(self, name: str) -> None:
        """Hide a user name: as a word if it is a distinctive one, else as part of a path or before an `@`."""
        if len(name) > 1 and name not in _GENERIC_USERS and not PSEUDONYM.fullmatch(name):
            self._users.add(name)
            self._done.clear()

    def add_secret(self, value: str) -> None:
        """Hide a text wherever it stands. Shorter than six characters it would hide too much."""
        if len(value) >= 6 and not is_harmless(value):
            self._know(value, REDACTED)

    def name(self, kind: str, original: str) -> str:
        """The pseudonym of a name: `kind` and a number, the same each time."""
        key = (kind, original.lower())
        if key not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[key] = f"{kind}-{self._counts[kind]}"
        return self._names[key]

    def add_name(self, kind: str, original: str) -> None:
        """Hide a distinctive name wherever it stands."""
        if len(original) >= 3 and not PSEUDONYM.fullmatch(original):
            self._know(original, self.name(kind, original))

    def add_serial(self, serial: str) -> None:
        """Hide a serial number wherever it stands. Shorter than six characters it would hide too much."""
        if len(serial) >= 6 and serial.lower() not in _NOTHING and not PSEUDONYM.fullmatch(serial):
            self._know(serial, self.name("serial", serial))

    def add_path(self, path: str) -> None:
        """Hide the owner's part of a path wherever the whole path stands."""
        if (hidden := places.hide_path(self.text(path), self.name)) != path:
            self._know(path, hidden)

    def add_release(self, release: str) -> None:
        """Hide the name that somebody gave to a kernel that they built."""
        if (hidden := places.hide_release(release)) != release:
            self._know(release, hidden)

    def _know(self, original: str, pseudonym: str) -> None:
        if self._known.setdefault(original, pseudonym) == pseudonym:
            self._known_pattern = None
            self._done.clear()

    # -- finding more of them --

    def learn(self, text: str) -> None:
        """Remember the hostnames, users and secrets that a text gives away by its form."""
        for _, user in p.HOME.findall(text):
            self.add_user(user)
        for host in p.TRACE_FILE.findall(text):
            self.add_host(host)
        for name, value in _environment_pairs(text):
            self.learn_variable(name, value)

    def learn_variable(self, name: str, value: str) -> None:
        """Remember what one environment variable gives away."""
        value = value.strip("\"'")
        if name in ("HOSTNAME", "HOST", "NODE_NAME", "SLURMD_NODENAME"):
            self.add_host(value)
        elif name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER"):
            self.add_user(value)
        elif is_sensitive(name) or (is_performance(name) and not may_keep(name, value)):
            self.add_secret(value)  # what a finding says of a variable may quote it

    # -- texts --

    def text(self, text: str, *, prose: bool = False, addresses: bool = True) -> str:
        """A text without names, addresses and secrets. `prose` is for sentences that wellfed wrote: numbers in
        `NAME=8` stay. `addresses=False` is for versions, which can look like addresses."""
        if len(text) < 3:
            return text
        key = (text, prose, addresses)
        if key not in self._done:
            self._done[key] = self._redact(text, prose, addresses)
        return self._done[key]

    def code(self, text: str) -> str:
        """A kernel or operator name: only tokens, home paths and known names go."""
        text = p.TOKEN.sub(REDACTED, text)
        return self._hide_known(p.HOME.sub(self._home, text))

    def path(self, path: str, *, addresses: bool = True) -> str:
        """A path of the machine: `places.py` says what stays."""
        clean = "/".join(self.text(part, addresses=addresses) for part in path.split("/"))
        return places.hide_path(clean, self.name)

    def mount_source(self, source: str, fs: str) -> str:
        """A device, a server's share or a volume, as the table of mounts names it."""
        return places.hide_source(self.text(source), fs, self.name)

    def parameters(self, text: str) -> str:
        """A kernel command line, or one word of it."""
        return places.hide_parameters(self.text(text), self.name)

    def log(self, text: str) -> str:
        """Lines of a kernel log."""
        return places.hide_in_log(self.text(text), self.name)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Environment variables with only the values that tune performance."""
        return {name: self._variable(name, self.text(value)) for name, value in variables.items()}

    def _redact(self, text: str, prose: bool, addresses: bool) -> str:
        text = self._hide_known(text)
        text = p.PEM.sub(REDACTED, text)
        text = p.URL_LOGIN.sub(REDACTED, text)
        text = p.TOKEN.sub(REDACTED, text)
        text = p.BEARER.sub(rf"\1\2{REDACTED}", text)
        text = p.BUILDER.sub("(builder)", text) if "@" in text else text
        text = p.MAIL.sub(self._as("mail"), text)
        text = p.UUID.sub(self._uuid, text)
        text = p.DISK_ID.sub(lambda m: self._serial(m[0]), text)
        text = p.HOME.sub(self._home, text)
        if addresses and ":" in text:
            text = p.MAC.sub(self._as("mac"), text)
            text = p.GUID.sub(self._as("guid"), text)
            text = p.IPV6.sub(self._ipv6, text)
        text = p.SERIAL.sub(lambda m: m[1] + self._serial(m[2]), text)
        if addresses:
            text = p.IPV4.sub(self._ipv4, text)
        text = p.HEX.sub(self._hex, text)
        text = p.WORD.sub(lambda m: REDACTED if _is_random(m[0]) else m[0], text)
        text = p.NAMED_SECRET.sub(self._named_secret, text)
        return self._variables(text, prose)

    def _hide_known(self, text: str) -> str:
        if self._known:
            if self._known_pattern is None:
                longest_first = sorted(self._known, key=lambda name: (-len(name), name))
                self._known_pattern = re.compile(
                    rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9])"
                )
            text = self._known_pattern.sub(lambda m: self._known[m[0]], text)
        if self._users and not text.startswith(("/proc/", "/sys/")):
            for user in sorted(self._users):
                if user in text:
                    text = re.sub(_user_pattern(user), lambda m: self.name("user", m[0]), text)
        return text

    def _as(self, kind: str) -> Callable[[re.Match[str]], str]:
        def hide(match: re.Match[str]) -> str:
            digits = re.sub(r"0x|[:.-]", "", match[0].lower())
            if kind != "mail" and len(set(digits)) == 1 and digits[0] in "0f":
                return match[0]
            return self.name(kind, match[0])

        return hide

    def _uuid(self, match: re.Match[str]) -> str:
        prefix = match[1] or ""
        body = match[0][len(prefix) :]
        if set(body) <= set("0-"):
            return match[0]
        return f"{prefix.removesuffix('GPU-') or prefix}{self.name('uuid', body)}"

    def _serial(self, value: str) -> str:
        if value.lower() in _NOTHING or PSEUDONYM.fullmatch(value):
            return value
        return self.name("serial", value)

    def _home(self, match: re.Match[str]) -> str:
        user = match[2]
        if user in _GENERIC_USERS or PSEUDONYM.fullmatch(user):
            return match[0]
        return match[1] + self.name("user", user)

    def _ipv4(self, match: re.Match[str]) -> str:
        octets = match[0].split(".")
        if any(int(octet) > 255 or (octet[0] == "0" and len(octet) > 1) for octet in octets):
            return match[0]
        if octets[0] in ("127", "255") or match[0] == "0.0.0.0":
            return match[0]
        if p.VERSION_BEFORE.search(match.string[max(0, match.start() - 40) : match.start()]):
            return match[0]
        return self.name("ipv4", match[0])

    def _ipv6(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv6Address(match[0])
        except ValueError:
            return match[0]
        if address.is_loopback or address.is_unspecified or not any(c.isdigit() for c in match[0]):
            return match[0]
        return self.name("ipv6", str(address))

    def _hex(self, match: re.Match[str]) -> str:
        # CPU masks and paddings are long and hexadecimal too, but have few different digits.
        return self.name("hex", match[0]) if len(set(match[0].lower())) >= 8 else match[0]

    def _named_secret(self, match: re.Match[str]) -> str:
        value = match[2]
        if value.startswith(REDACTED[:-1]) or PSEUDONYM.fullmatch(value):
            return match[0]
        if re.fullmatch(r"[\d.]{1,10}|true|false|none|null|\$\{?\w+\}?", value, re.I):
            return match[0]
        if not re.search(r"[:=]", match[1]) and not match[1].startswith("-"):
            return match[0]  # "the token is": a sentence, not a setting
        return match[1] + REDACTED

    # -- environment variables inside texts --

    def _variable(self, name: str, value: str) -> str:
        return value if may_keep(name, value) else REDACTED

    def _variables(self, text: str, prose: bool) -> str:
        if "=" not in text and ":" not in text:
            return text
        if not prose:
            text = p.ENV_JSON.sub(self._json_variable, text)
            text = p.ENV_LINE.sub(self._line_variable, text)
            if sum(m[1] not in p.PUBLIC_NAMES for m in p.ANY_LINE.finditer(text)) >= p.DUMP_LINES:
                text = p.ANY_LINE.sub(self._dump_variable, text)
        return p.ENV_WORD.sub(lambda m: self._word_variable(m, prose), text)

    def _json_variable(self, match: re.Match[str]) -> str:
        if match[2] is not None:
            return match[1] + self._variable(match[2], match[3])
        return match[4] + match[5] + match[6] + self._variable(match[5], match[7])

    def _line_variable(self, match: re.Match[str]) -> str:
        name, value = match[2], match[3]
        first = value.split(maxsplit=1)[0] if value.strip() else ""
        if name in p.PUBLIC_NAMES or may_keep(name, first):
            return match[0]
        return f"{match[1]}{name}={REDACTED}"

    def _dump_variable(self, match: re.Match[str]) -> str:
        if match[1] in p.PUBLIC_NAMES:
            return match[0]
        return f"{match[1]}={self._variable(match[1], match[2])}"

    def _word_variable(self, match: re.Match[str], prose: bool) -> str:
        name, value = match[1], match[2]
        tail = value[len(value.rstrip(".,;:)")) :]
        value = value.removesuffix(tail)
        # `BAR=4`, `N0=17`: upper case alone makes no variable of a name.
        if name in p.PUBLIC_NAMES or (
            (prose or "_" not in name) and not is_sensitive(name) and is_harmless(value)
        ):
            return match[0]
        return f"{name}={self._variable(name, value)}{tail}"


# -- the case ----------------------------------------------------------------------------------------------


def redact_case(case: Case) -> Case:
    """The case as it may be shown to others. A case that is redacted already comes back as it is."""
    if case.redacted:
        return case
    public = redact_tree(msgspec.to_builtins(case, str_keys=True))
    return replace(msgspec.convert(public, Case, str_keys=True), redacted=True)


def redact_tree(tree: Any) -> Any:
    """The same for plain values: mappings, lists, texts and numbers, as JSON has them."""
    redactor = Redactor()
    _learn(redactor, tree, "")
    for machine in _machines(tree):
        _learn_places(redactor, machine)
    return _public(redactor, tree, "")


def _machines(tree: Any) -> list[dict[str, Any]]:
    """The machine of a case, or what a verb shows of one: a mapping with facts."""
    found = (tree, tree.get("machine")) if isinstance(tree, dict) else ()
    return [one for one in found if isinstance(one, dict) and isinstance(one.get("facts"), dict)]


def _learn_places(redactor: Redactor, machine: dict[str, Any]) -> None:
    """Remember where this machine keeps things, so that no sentence about it tells either."""
    for key, fact in machine["facts"].items():
        if key == "kernel.release" and isinstance(fact.get("value"), str):
            redactor.add_release(fact["value"])
        elif _PLACE_KEYS.match(key):
            for text in _strings([fact.get(name) for name in ("value", "source", "raw", "detail")]):
                whole = text.removeprefix("statvfs ")
                for path in [whole] if whole.startswith("/") and "\n" not in whole else places.paths_in(text):
                    redactor.add_path(path)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [text for item in items for text in _strings(item)]


def _learn(redactor: Redactor, value: Any, key: str) -> None:
    """First walk: collect the names, so that the second hides them where they stand alone too."""
    if isinstance(value, dict):
        field = _field(str(value.get("key", ""))) if "status" in value and "key" in value else ""
        for name, item in value.items():
            _learn(redactor, item, field if name == "value" and field else name)
            if isinstance(item, str) and not _is_fact(value) and (key in _ENV_KEYS or _is_variable(name)):
                redactor.learn_variable(name, item)
    elif isinstance(value, list | tuple):
        for item in value:
            _learn(redactor, item, key)
    elif isinstance(value, str) and key in _HOST_KEYS:
        redactor.add_host(value)
    elif isinstance(value, str) and _field(key).lower().endswith("serial"):
        redactor.add_serial(value)
    elif isinstance(value, str):
        redactor.learn(value)


def _public(redactor: Redactor, value: Any, key: str) -> Any:
    """Second walk. `key` is the name of the field or mapping entry that holds `value`."""
    if isinstance(value, dict):
        return _public_mapping(redactor, value, key)
    if isinstance(value, list | tuple):
        return [_public(redactor, item, key) for item in value]
    if "serial" in key.lower() and value is not None and not isinstance(value, bool | dict):
        return redactor.text(f"serial: {value}").removeprefix("serial: ")
    if not isinstance(value, str):
        return value
    if key == "cmdline":
        return redactor.parameters(value)
    if key == "xids":
        return redactor.log(value)
    if key in _CODE_KEYS:
        return redactor.code(value)
    return redactor.text(value, prose=key in _PROSE_KEYS, addresses=not _VERSION_KEYS.search(key))


def _is_fact(value: dict[str, Any]) -> bool:
    return "key" in value and "status" in value


def _public_mapping(redactor: Redactor, value: dict[str, Any], key: str) -> dict[str, Any]:
    is_fact = _is_fact(value)
    field = _field(str(value["key"])) if is_fact else ""
    out: dict[str, Any] = {}
    if value.keys() >= {"path", "source", "fs", "options"}:
        value = {**value, **_public_mount(redactor, value)}
    for name, item in value.items():
        # The keys of mappings are names of fields or of files, but a GPU may be keyed by its UUID.
        public_name = name if name.isidentifier() else redactor.text(name, addresses=False)
        # A fact may itself be *about* the environment: its fields are no variables.
        if isinstance(item, str) and not is_fact and (key in _ENV_KEYS or _is_variable(name)):
            out[public_name] = redactor.environment({name: item})[name]
        elif is_fact and name in ("value", "raw"):
            out[name] = _public_fact(redactor, item, field, str(value["key"]))
        elif name == "environment" and "hardware_key" in value:
            # A ceiling's: versions and settings that we wrote, not variables of the user's.
            out[name] = _public(redactor, item, "version")
        else:
            out[public_name] = _public(redactor, item, name)
    return out


def _public_mount(redactor: Redactor, mount: dict[str, Any]) -> dict[str, Any]:
    """What is mounted there, and how: names of servers, shares and volumes."""
    source, options = mount["source"], mount["options"]
    return {
        "source": redactor.mount_source(source, str(mount["fs"])) if isinstance(source, str) else source,
        "options": [places.hide_option(str(option)) for option in options or ()],
    }


def _public_fact(redactor: Redactor, item: Any, field: str, key: str) -> Any:
    """The value or raw text of a fact about `field`, which says what kind of text it is."""
    if key.startswith("environment") and isinstance(item, str):
        name = key.removeprefix("environment").strip("[].")
        return redactor.environment({name: item})[name]
    if key.startswith(("software", "kernel.release")):
        field = "version"
    return _public(redactor, item, field)


@functools.cache
def _field(key: str) -> str:
    """The last name of a path: `gpus[0].serial` -> serial, `environment[HOME]` -> environment."""
    return re.sub(r"\[[^\]]*\]", "", key).rpartition(".")[2]


def _is_variable(name: str) -> bool:
    return (
        re.fullmatch(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+|PATH|HOME|USER|LOGNAME|HOSTNAME|PWD|SHELL", name) is not None
    )


def _environment_pairs(text: str) -> list[tuple[str, str]]:
    pairs = [(m[2], m[3]) for m in p.ENV_LINE.finditer(text)] if "=" in text else []
    pairs += [(m[1], m[2]) for m in p.ENV_WORD.finditer(text)] if "=" in text else []
    if ":" in text:
        pairs += [(m[2] or m[5], m[3] or m[7] or "") for m in p.ENV_JSON.finditer(text)]
    return pairs


@functools.cache
def _user_pattern(user: str) -> str:
    """A short or common name is only taken for a person where a path or an `@` says so."""
    word = re.escape(user)
    if len(user) >= 5 and user not in _SERVICE_USERS:
        return rf"(?<![A-Za-z0-9]){word}(?![A-Za-z0-9])"
    return rf"(?<=[/\\]){word}(?=[/\\@\s\"':;,]|$)|(?<![\w-]){word}(?=@)"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_random(word: str) -> bool:
    """Whether a long word has a stretch that changes between lower case, upper case and digits as often as
    random letters do, without a run that reads like a word. Mangled C++ names change often too; they begin
    with `_Z`."""
    if word.startswith("_Z"):
        return False
    for part in re.split(r"[/_=-]", word):
        if len(part) < 28:
            continue
        kinds = ["digit" if c.isdigit() else "upper" if c.isupper() else "lower" for c in part]
        runs = [len(list(run)) for _, run in itertools.groupby(kinds)]
        if len(set(kinds)) == 3 and max(runs) <= 8 and len(runs) - 1 >= 0.45 * (len(part) - 1):
            return True
    return False
