"""A list of changes from outside: what is one, and what is refused in plain words."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.apply.kinds import KINDS
from wellfed.apply.user_file import MAX_BYTES, MAX_CHANGES, read_changes
from wellfed.model import WellfedError

ONE = '[[change]]\nkind = "sysctl"\ntarget = "vm.stat_interval"\nnew = "7"\n'


def read(folder: Path, text: str | bytes) -> list[tuple[str, str, str, str, str]]:
    path = folder / "my.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return [(c.code, c.kind, c.target, c.new, c.why) for c in read_changes(path)]


def test_a_list(tmp_path: Path) -> None:
    more = '[[change]]\nkind = "thp"\ntarget = "enabled"\nnew = "always"\ncode = "T-1"\nwhy = "ticket 1"\n'
    assert read(tmp_path, ONE + more) == [
        ("user", "sysctl", "vm.stat_interval", "7", ""),
        ("T-1", "thp", "enabled", "always", "ticket 1"),
    ]
    assert read(tmp_path, ONE.replace("\n", "\r\n")) == [("user", "sysctl", "vm.stat_interval", "7", "")]


def test_numbers_of_several_words_and_files_of_several_lines(tmp_path: Path) -> None:
    text = '[[change]]\nkind = "sysctl"\ntarget = "net.ipv4.tcp_rmem"\nnew = "4096\\t131072 6291456"\n'
    text += (
        '[[change]]\nkind = "dropin"\ntarget = "/etc/sysctl.d/90-wellfed.conf"\nnew = "a = 1\\nb = 2\\n"\n'
    )
    assert [new for *_, new, _ in read(tmp_path, text)] == ["4096\t131072 6291456", "a = 1\nb = 2\n"]


@pytest.mark.parametrize(
    "text,words",
    [
        ("", "no `[[change]]`"),
        ("change = 3\n", "no `[[change]]`"),
        ("change = []\n", "no `[[change]]`"),
        ("change = [1]\n", "no `[[change]]`"),
        ("[change]\nkind = 'sysctl'\n", "no `[[change]]`"),
        ("[[changes]]\n", "no key `changes`"),
        ("x = 1\n" + ONE, "no key `x`"),
        (ONE + "risk = 'safe'\n", "change 1: no key `risk`"),
        (ONE.replace('"7"', "7"), "change 1: `new` is no text"),
        (ONE.replace('"7"', "true"), "change 1: `new` is no text"),
        (ONE.replace('"7"', '["7"]'), "change 1: `new` is no text"),
        (ONE.replace('"7"', "{a = 1}"), "change 1: `new` is no text"),
        (ONE.replace('"7"', '""'), "change 1 has no `new`"),
        (ONE.replace('new = "7"', ""), "change 1 has no `new`"),
        (ONE + ONE.replace('"sysctl"', '"shell"'), "change 2: no kind `shell`"),
        (ONE.replace('"sysctl"', '"instruction"'), "no kind `instruction`"),
        (ONE + 'code = "../x"\n', "`../x` is no code"),
        (ONE + 'code = ""\n', "is no code"),
        (ONE.replace('"7"', '"7\\n8"'), "`new` holds a control character"),
        (ONE.replace("vm.stat_interval", "vm.\\u0000x"), "`target` holds a control character"),
        (ONE + 'why = "\\u001b[2J"\n', "`why` holds a control character"),
        (ONE + 'why = "\\u202ex"\n', "`why` holds a control character"),
        (ONE.replace('"7"', '"' + "7" * 5000 + '"'), "is too long"),
        (ONE * (MAX_CHANGES + 1), "more than"),
        ("[[change", "not TOML"),
        ("x = " + "[" * 3000, "not TOML"),
        ("x = " + "9" * 5000, "not TOML"),
        ("a" + ".a" * 200 + " = 1", "more than 64 parts"),
        (b"\xff\xfe", "not TOML"),
        (b"#" * (MAX_BYTES + 1), "larger than"),
    ],
)
def test_what_is_no_list(text: str | bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(WellfedError) as error:
        read(tmp_path, text)
    assert words in error.value.message and error.value.message.endswith("; nothing is changed")
    assert error.value.hint and error.value.exit_code == 2 and len(error.value.message) < 1000


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in (
        ("pipe", "no regular file"),
        ("none", "No such file"),
        (".", "can't read"),
        ("a\0b", "null"),
    ):
        with pytest.raises(WellfedError, match=words):
            read_changes(tmp_path / name)


@given(st.dictionaries(st.sampled_from(["kind", "target", "new", "code", "why", "x"]), st.text(max_size=20)))
def test_any_text_is_a_list_or_refused(row: dict[str, str]) -> None:
    """Nothing else than an error for the user comes of it; what passes has no control character and a kind that is one."""
    import tempfile

    def quoted(text: str) -> str:
        plain = text.encode("utf-8", "replace").decode()
        return '"' + "".join(f"\\U{ord(char):08x}" for char in plain) + '"'

    body = "[[change]]\n" + "".join(f"{key} = {quoted(value)}\n" for key, value in row.items())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.toml"
        path.write_text(body)
        try:
            (one,) = read_changes(path)
        except WellfedError:
            return
    assert one.kind in KINDS and one.target.isprintable() and one.evidence == "user"
