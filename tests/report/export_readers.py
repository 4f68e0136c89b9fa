"""Strict readers of what the exports write, after the manuals of those who read it for real."""

import re
from collections.abc import Iterator
from configparser import ConfigParser

import yaml


def rows(text: str) -> Iterator[tuple[list[str], str]]:
    """Each line that is none, with the comments right above it."""
    notes: list[str] = []
    for line in text.split("\n"):
        if line.lstrip().startswith("#"):
            notes.append(line)
            continue
        if line:
            yield notes, line
        notes = []


def sysctl_d(text: str) -> list[tuple[str, str]]:
    """sysctl.d(5): a dot or slash, whichever comes first in a key, separates its parts. Gives paths."""
    found = []
    for line in text.split("\n"):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        key, equals, value = line.partition("=")
        assert equals and not key.startswith("-") and not re.search(r"\s", key.strip())
        key = key.strip()
        first = re.search("[./]", key)
        assert first is not None
        if first[0] == ".":
            key = key.translate({ord("."): "/", ord("/"): "."})
        found.append((f"/proc/sys/{key}", value.strip()))
    return found


_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " ", "\\": "\\", '"': '"', "'": "'"}  # fmt: skip


def cunescape(text: str) -> str:
    """systemd's cunescape(): an unknown escape is an error."""
    out, at = "", 0
    while at < len(text):
        if text[at] != "\\":
            out, at = out + text[at], at + 1
            continue
        char = text[at + 1]
        if char == "x":
            out, at = out + chr(int(text[at + 2 : at + 4], 16)), at + 4
        else:
            out, at = out + _ESCAPES[char], at + 2
    return out


def specifiers(text: str) -> str:
    """Only `%%` is ours."""
    assert not re.search(r"(?<!%)(%%)*%(?!%)", text), text
    return text.replace("%%", "%")


def tmpfiles(text: str) -> list[tuple[str, str]]:
    """tmpfiles.d(5), lines of type w: path and value, in the order in which systemd-tmpfiles writes them: those with a
    pattern after all others."""
    found = []
    for _, line in rows(text):
        assert not line.startswith(" ")
        kind, path, mode, user, group, age, value = line.split(maxsplit=6)
        assert (kind, mode, user, group, age) == ("w", "-", "-", "-", "-") and value != "-"
        assert not re.search(r"[%\\\"']", path)
        found.append((path, specifiers(cunescape(value))))
    return sorted(found, key=lambda one: re.search(r"[*?\[]", one[0]) is not None)


def glob_free(path: str) -> str:
    """The pattern `[x]` is the letter x."""
    return re.sub(r"\[(.)\]", r"\1", path)


_KEY = re.compile(r"([A-Z]+(?:\{[^{}\"]+\})?)(==|!=|\+=|=)\"")


def udev(text: str) -> list[dict[str, tuple[str, str]]]:
    """udev(7): each rule as key -> (operator, value), substitutions left in. Within quotes only `\\"` is an escape, and
    the first quote without one ends them."""
    found = []
    for _, line in rows(text):
        at, rule = 0, {}
        while at < len(line):
            token = _KEY.match(line, at)
            assert token is not None, line[at:]
            at, value = token.end(), ""
            while line[at] != '"':
                at += line.startswith('\\"', at)
                value, at = value + line[at], at + 1
            rule[token[1]] = (token[2], value)
            assert line[at + 1 :][:2] in ("", ", ")
            at += 3
        found.append(rule)
    return found


def substituted(value: str) -> str:
    """Only `%%` and `$$` are ours."""
    out, at = "", 0
    while at < len(value):
        if value[at] in "%$":
            assert value[at + 1] == value[at], value
            at += 1
        out, at = out + value[at], at + 1
    return out


def tuned(text: str) -> dict[str, dict[str, str]]:
    """As tuned's loader reads a profile (2.20: profiles/loader.py)."""
    parser = ConfigParser(delimiters=("=",), inline_comment_prefixes=("#",), strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    found = {
        name: {key: parser.get(name, key, raw=True) for key in parser.options(name)}
        for name in parser.sections()
    }
    for value in found.get("sysctl", {}).values():
        assert not re.match(r"[<>].", value), "a comparison"
        assert not re.fullmatch('".*"', value), "quotes are taken off"
    assert not any("${" in value for options in found.values() for value in options.values()), "a variable"
    return found


def unit(text: str) -> dict[str, dict[str, list[str]]]:
    """systemd.syntax(7): section -> key -> values in their order."""
    found: dict[str, dict[str, list[str]]] = {}
    section = ""
    for line in text.split("\n"):
        line = line.strip()
        assert not line.endswith("\\"), "no line goes on in the next"
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            section = line.strip("[]")
            continue
        key, equals, value = line.partition("=")
        assert equals and section
        found.setdefault(section, {}).setdefault(key.strip(), []).append(value.strip())
    return found


def command(line: str) -> list[str]:
    """A command line of systemd.service(5): words and quotes with escapes, then specifiers, then `$`."""
    words, at = [], 0
    while at < len(line):
        if line[at] == " ":
            at += 1
            continue
        word = ""
        while at < len(line) and line[at] != " ":
            quote = line[at]
            if quote in "\"'":
                end = re.compile(rf"(?:\\.|[^\\{quote}])*{quote}", re.DOTALL).match(line, at + 1)
                assert end is not None, line
                word += cunescape(end[0][:-1])
                at = end.end()
                assert at == len(line) or line[at] == " "
            else:
                assert line[at] not in "\\;"
                word, at = word + line[at], at + 1
        word = specifiers(word)
        assert not re.search(r"(?<!\$)(\$\$)*\$(?!\$)", word), word
        words.append(word.replace("$$", "$"))
    return words


class _Loader(yaml.SafeLoader):
    pass


class Unsafe(str):
    """A text in which Ansible fills nothing in."""


_Loader.add_constructor("!unsafe", lambda loader, node: Unsafe(loader.construct_scalar(node)))


def play(text: str) -> dict[str, object]:
    (found,) = yaml.load(text, _Loader)
    assert isinstance(found, dict)
    return found
