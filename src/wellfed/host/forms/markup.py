"""XML from strangers: a bounded tree without entities, and which form it is.

lstopo's files name a DTD in their DOCTYPE line. It is never opened: the parser is told of no way to open anything, and a
document that declares anything itself is refused. Sizes are capped before and while the tree grows."""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from wellfed.host.forms import shown
from wellfed.host.live import read_regular
from wellfed.host.parse import MAX_CPUS, integer
from wellfed.host.stated import StatedHost
from wellfed.model.errors import WellfedError
from wellfed.model.fact import Fact

MAX_XML_BYTES = 32 << 20
"""The file of a machine with 384 CPUs has 0.4 MB; the kernel's limit of 8192 CPUs would make some ten."""
MAX_ELEMENTS = 200_000
MAX_DEPTH = 128
"""Bridges within bridges: real files reach about 20."""
_MASK_CHARS = 4096
"""256 words with their commas and `0x` have 2815."""
_KEPT_TEXT = ("indexes", "u64values")

KINDS = "`lstopo topo.xml`, `NCCL_TOPO_DUMP_FILE=topo.xml`"


class Node(NamedTuple):
    """An element. `text` is kept only where a form has any."""

    tag: str
    attrs: dict[str, str]
    children: "list[Node]"
    text: list[str]

    def number(self, name: str) -> int | None:
        """An attribute as a whole number that is not negative; None when it is missing or is none."""
        try:
            value = integer(self.attrs.get(name, ""))
        except ValueError:
            return None
        return value if value >= 0 else None

    def below(self, tag: str) -> "Iterator[Node]":
        return (child for child in self.children if child.tag == tag)


class Form(NamedTuple):
    """`name` as in `an lstopo XML`; `read` gives facts, or raises ValueError with what is wrong; `note` says what to
    know of every file of the kind."""

    name: str
    read: Callable[[Node], list[Fact]]
    note: str | None = None


class _RefusedError(Exception):
    pass


def open_xml(spec: str) -> StatedHost:
    """The machine of a topology. Raises WellfedError."""
    try:
        data, cut = read_regular(spec, MAX_XML_BYTES)
    except OSError as error:
        raise WellfedError(f"cannot read host {shown(spec)}: {error.strerror}", hint=KINDS) from error
    if cut:
        raise WellfedError(
            f"{shown(spec)} is larger than {MAX_XML_BYTES >> 20} MiB, and no topology is", hint=KINDS
        )
    root = grow(data, shown(spec))
    form = _form(root, shown(spec))
    try:
        facts = form.read(root)
    except ValueError as error:
        raise WellfedError(f"{shown(spec)} is no sound topology: {error}", hint=KINDS) from error
    return StatedHost(
        origin=spec, form=form.name, stated=facts, notes=(form.note,) if form.note is not None else ()
    )


def _form(root: Node, name: str) -> Form:
    if root.tag == "topology":
        from wellfed.host.forms.lstopo import read_lstopo

        return Form("an lstopo XML", read_lstopo)
    if root.tag == "system":
        from wellfed.host.forms.nccl import NOTE, read_nccl

        return Form("an NCCL topology", read_nccl, NOTE)
    if root.tag == "graphs":
        raise WellfedError(
            f"{name} is a graph that NCCL chose (NCCL_GRAPH_DUMP_FILE): it names no machine",
            hint="NCCL_TOPO_DUMP_FILE=topo.xml writes the topology",
        )
    if root.tag == "nvidia_smi_log":
        raise WellfedError(
            f"{name} is an answer of `nvidia-smi -q -x`: it tells of GPUs, and of no host around them",
            hint="wellfed inspect --record box.tar keeps that answer with all others",
        )
    raise WellfedError(f"{name} is an XML of no kind that tells of a machine", hint=KINDS)


def grow(data: bytes, name: str) -> Node:
    """The root of the document. A document that is cut or damaged is refused: counts of what is left would be wrong."""
    from xml.parsers import expat

    top = Node("", {}, [], [])
    open_nodes = [top]
    count = 0

    def start(tag: str, attrs: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MAX_ELEMENTS or len(open_nodes) > MAX_DEPTH:
            raise _RefusedError("has more or deeper elements than any topology")
        node = Node(tag, attrs, [], [])
        open_nodes[-1].children.append(node)
        open_nodes.append(node)

    def end(_tag: str) -> None:
        open_nodes.pop()

    def text(characters: str) -> None:
        if open_nodes[-1].tag in _KEPT_TEXT:
            open_nodes[-1].text.append(characters)

    def doctype(_name: str, _system: Any, _public: Any, has_subset: int) -> None:
        if has_subset:
            raise _RefusedError("declares entities or elements of its own, which no topology does")

    def entity(*_: Any) -> int:
        raise _RefusedError("declares or refers to entities, which no topology does")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = parser.ExternalEntityRefHandler = parser.SkippedEntityHandler = entity
    try:
        parser.Parse(data, True)
    except _RefusedError as error:
        raise WellfedError(f"{name} {error}", hint=KINDS) from error
    except (expat.ExpatError, ValueError, LookupError) as error:  # the latter two: an encoding that is none
        raise WellfedError(f"{name} is damaged or cut: {error}", hint="write it again") from error
    return top.children[0]


def mask(text: str) -> int:
    """hwloc's bitmap as a number, bit n for CPU n: words of 32 bits, the highest first, an empty one for 0
    (`0x000000ff,,0xffffffff`). A number, since thousands of masks of thousands of CPUs fit where sets would not. Raises
    ValueError, also for the endless one (`0xf...f`), which stands for all CPUs that there could be."""
    words = text[:_MASK_CHARS].strip().split(",")
    if len(text) > _MASK_CHARS or len(words) * 32 > MAX_CPUS:
        raise ValueError(f"a mask of more than {MAX_CPUS:,} bits")
    bits = 0
    for word in words:
        if not re.fullmatch(r"(?:(?:0x)?[0-9a-fA-F]{1,8})?", word):
            raise ValueError(f"`{text[:40]}` is no mask")
        bits = bits << 32 | (int(word, 16) if word else 0)
    return bits


def members(bits: int) -> tuple[int, ...]:
    """The numbers in a mask, sorted."""
    return tuple(at for at, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")
