"""XML from strangers, and hwloc's masks: what is refused, in which words, and that nothing is opened or fills the memory."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_forms import Shape, hex_mask, lstopo

from wellfed.check import judge_machine
from wellfed.host import look, open_host
from wellfed.host.forms.markup import MAX_DEPTH, MAX_XML_BYTES, mask, members
from wellfed.model import WellfedError

GOOD = lstopo(Shape(1, 2))


def written(tmp_path: Path, content: str | bytes) -> str:
    path = tmp_path / "x.xml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


LAUGHS = (
    '<!DOCTYPE topology [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><topology><info name="&b;"/></topology>'
)
OUTSIDE = '<!DOCTYPE topology [<!ENTITY a SYSTEM "{}">]><topology>&a;</topology>'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LAUGHS, "declares entities"),
        (OUTSIDE.format("file:///etc/hostname"), "declares entities"),
        ('<!DOCTYPE topology [<!ENTITY % p SYSTEM "x"> %p;]><topology/>', "declares entities"),
        ('<!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology>&what;</topology>', "entities"),
        ("<topology>" + "<object>" * (MAX_DEPTH + 1), "deeper"),
        ("<topology>" + "<object/>" * 200_001 + "</topology>", "more or deeper"),
        (GOOD[: len(GOOD) // 2], "damaged or cut"),
        ("<", "damaged or cut"),
        (b"<?xml version='1.0' encoding='no-such-code'?><topology/>", "damaged or cut"),
        (b"<topology a='\xff\xfe'/>", "damaged or cut"),
        ("<html/>", "no kind that tells"),
        ("<graphs/>", "names no machine"),
        ("<nvidia_smi_log/>", "tells of GPUs"),
        ("<topology/>", "has no object"),
        ('<topology><object type="Machine"/></topology>', "shows no CPU"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(WellfedError, match=words):
        open_host(written(tmp_path, text))


def test_the_dtd_is_named_and_never_opened(tmp_path: Path) -> None:
    """A pipe without a writer: opening it would wait for ever."""
    os.mkfifo(tmp_path / "hwloc2.dtd")
    text = GOOD.replace("hwloc2.dtd", str(tmp_path / "hwloc2.dtd"))
    assert look(open_host(written(tmp_path, text))).cpu.logical == 2


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_encodings(tmp_path: Path, code: str) -> None:
    text = GOOD.replace("UTF-8", code.removesuffix("-sig"))
    assert look(open_host(written(tmp_path, text.encode(code)))).cpu.logical == 2


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = written(tmp_path, "<topology>")
    os.truncate(path, MAX_XML_BYTES + 1)
    with pytest.raises(WellfedError, match="larger than 32 MiB"):
        open_host(path)


def test_no_xml_is_still_no_host(tmp_path: Path) -> None:
    with pytest.raises(WellfedError, match="not a tar"):
        open_host(written(tmp_path, "hello"))
    with pytest.raises(WellfedError, match="there is no host"):
        open_host(str(tmp_path / "none.xml"))


@given(st.sets(st.integers(0, 8191)))
def test_a_mask_comes_back(cpus: set[int]) -> None:
    assert members(mask(hex_mask(cpus))) == tuple(sorted(cpus))


@settings(max_examples=60)
@given(st.text(alphabet="0123456789abcdefxX,.- \n\0-", max_size=80) | st.text(max_size=20))
def test_any_text_is_a_mask_or_refused(text: str) -> None:
    try:
        assert 0 <= mask(text) < 1 << 8192
    except ValueError:
        pass


@pytest.mark.parametrize(
    "text", ["0x" + "f" * 9, "0xf...f", "-0x1", "0x1,-0x1", "0x1," * 256 + "0x1", "0x1;0x2"]
)
def test_masks_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="mask"):
        mask(text)


_NAMES = [
    "os_index",
    "cpuset",
    "complete_cpuset",
    "allowed_cpuset",
    "type",
    "depth",
    "cache_size",
    "local_memory",
]
_NAMES += [
    "osdev_type",
    "name",
    "value",
    "pci_busid",
    "pci_type",
    "numaid",
    "affinity",
    "busid",
    "class",
    "dev",
    "sm",
]
_NAMES += [
    "link_speed",
    "link_width",
    "target",
    "count",
    "tclass",
    "port",
    "speed",
    "guid",
    "kind",
    "nbobjs",
    "version",
]
_VALUES = [
    "PU",
    "Core",
    "Package",
    "L3Cache",
    "Cache",
    "NUMANode",
    "PCIDev",
    "Bridge",
    "OSDev",
    "Machine",
    "3",
    "0",
]
_VALUES += [
    "0x3",
    "-1",
    "99999999999999999999",
    "0000:01:00.0",
    "0302 [10de:2330] [0:0]",
    "0x030200",
    "0x068000",
    "nvml0",
]
_VALUES += [
    "16",
    "eth0",
    "ffffffff",
    "1.5",
    "",
    "é",
    "NUMALatency",
    "Port1State",
    "4",
    "mlx5_0",
    "0xf...f",
    "ffff:ff:01.0",
]
_TAGS = [
    "object",
    "info",
    "distances2",
    "indexes",
    "u64values",
    "cpukind",
    "cpu",
    "pci",
    "gpu",
    "nvlink",
    "nic",
    "net",
]


def _element(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    attrs = st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(_VALUES), max_size=6)
    return st.builds(_markup, st.sampled_from(_TAGS), attrs, st.lists(children, max_size=4))


def _markup(tag: str, attrs: dict[str, str], inside: list[str]) -> str:
    said = "".join(f' {name}="{value}"' for name, value in attrs.items())
    return f"<{tag}{said}>{''.join(inside)}</{tag}>"


@given(
    st.sampled_from(["topology", "system"]),
    st.lists(st.recursive(st.just("10 20"), _element, max_leaves=12), max_size=4),
    st.sampled_from(
        ["", '<object type="Machine"><object type="PU" os_index="0"/></object>', '<cpu numaid="0"/>']
    ),
)
def test_any_tree_is_a_machine_or_refused(
    tmp_path_factory: pytest.TempPathFactory, root: str, inside: list[str], first: str
) -> None:
    """No reader breaks on it, every fact fits its field, and every check can judge it."""
    path = tmp_path_factory.mktemp("any") / "x.xml"
    path.write_text(f"<{root}>{first}{''.join(inside)}</{root}>", "utf-8")
    try:
        machine = look(open_host(str(path)))
    except WellfedError:
        return
    assert not [why for why in machine.gaps.values() if why.startswith("error")]
    judge_machine(machine)
