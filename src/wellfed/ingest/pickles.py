"""Pickles as data: a decoder that knows the opcodes of plain values and none that call, import or build.

PyTorch dumps memory snapshots and flight records as pickles, and a pickle from a stranger is a program. So no
unpickler runs here: `loads` reads the opcodes that write None, booleans, numbers, text, bytes, lists, tuples and
dictionaries, and refuses all others by name, before anything of theirs is looked up. What it costs is bounded by
the file: each opcode makes at most one small value, there are at most MAX_OPCODES of them, the memo is a
dictionary (an index of 2^31 reserves nothing) of at most MAX_MEMO entries, lists, tuples and dictionaries are at most
MAX_CONTAINERS, open marks MAX_OPEN, a length beyond the end of the file is damage, and keys of
dictionaries are text (a tuple nested a million deep is never hashed). Values may share parts, as PyTorch's frames
do: whoever walks the result must expect the same list a million times over.

The format: `pickletools` of the standard library, protocols 2 to 5.
"""

import gc
import struct
from typing import Any

from wellfed.model import WellfedError

MAGIC = tuple(bytes([0x80, protocol]) for protocol in (2, 3, 4, 5))
MAX_BYTES = 512 << 20
MAX_OPCODES = 40_000_000
"""A snapshot of a million events has about 20 million."""
MAX_CONTAINERS, MAX_MEMO, MAX_OPEN = 4_000_000, 8_000_000, 10_000
"""A snapshot of a million events holds little more than a dictionary for each, and memoises it. A byte of the file may
ask for a dictionary of 64 bytes or a memo entry of 100, so that these bound the memory at about a GiB."""
MAX_INT_BYTES = 32
MAX_INT_KEYS = 4096
"""Keys that are integers can be chosen to collide, unlike text, whose hash is salted."""

_REFUSED = {
    0x30: "POP", 0x31: "POP_MARK", 0x32: "DUP", 0x50: "PERSID", 0x51: "BINPERSID", 0x52: "REDUCE", 0x53: "STRING", 0x62: "BUILD", 0x63: "GLOBAL",
    0x69: "INST", 0x6F: "OBJ", 0x81: "NEWOBJ", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x8B: "LONG4",
    0x8F: "EMPTY_SET", 0x90: "ADDITEMS", 0x91: "FROZENSET", 0x92: "NEWOBJ_EX", 0x93: "STACK_GLOBAL",
    0x96: "BYTEARRAY8", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER", 0x49: "INT", 0x4C: "LONG", 0x46: "FLOAT",
    0x56: "UNICODE", 0x67: "GET", 0x70: "PUT", 0x6C: "LIST", 0x64: "DICT",
}  # fmt: skip
"""Opcodes that a dump of plain values does not need: those that call or import, sets, protocol 0's text, and those that
only move the stack."""


class _Mark:
    """What MARK leaves on the stack."""


_MARK: Any = _Mark()
_F64 = struct.Struct(">d")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def matches(head: bytes) -> bool:
    """Whether a file that begins with `head` is a pickle of protocol 2 or later."""
    return head[:2] in MAGIC


def loads(data: bytes, name: str = "the file") -> Any:
    """The value that `data` pickles. Raises WellfedError, naming `name`, for a pickle that asks for anything but
    plain values, that is damaged or cut short, or that is beyond the limits above."""
    if len(data) > MAX_BYTES:
        raise WellfedError(
            f"{name} is larger than {MAX_BYTES >> 20} MiB",
            hint="record fewer events: torch.cuda.memory._record_memory_history(max_entries=100_000)",
        )
    if not matches(data):
        raise WellfedError(f"{name} is no pickle of protocol 2 or later", hint="dump it again with PyTorch")
    was_on = gc.isenabled()
    gc.disable()  # millions of small values and no cycles: the collector would double the time
    try:
        return _run(data, name)
    except (IndexError, KeyError, struct.error) as error:
        raise _damaged(name, "it ends early, or refers to what is not there") from error
    finally:
        if was_on:
            gc.enable()


def _run(data: bytes, name: str) -> Any:
    """The loop. Opcodes in the order of how often PyTorch writes them."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    push, size, at, int_keys, made = stack.append, len(data), 2, 0, 0
    for _ in range(MAX_OPCODES):
        op = data[at]
        at += 1
        if op == 0x68:  # BINGET
            push(memo[data[at]])
            at += 1
        elif op == 0x6A:  # LONG_BINGET
            push(memo[_U32.unpack_from(data, at)[0]])
            at += 4
        elif op == 0x4B:  # BININT1
            push(data[at])
            at += 1
        elif op == 0x4A:  # BININT
            push(_I32.unpack_from(data, at)[0])
            at += 4
        elif op == 0x8A:  # LONG1
            length = data[at]
            at += 1
            if length > MAX_INT_BYTES:
                raise _refused(name, f"an integer of {length} bytes")
            push(int.from_bytes(_piece(data, at, length, name), "little", signed=True))
            at += length
        elif op == 0x4D:  # BININT2
            push(data[at] | data[at + 1] << 8)
            at += 2
        elif op == 0x94:  # MEMOIZE
            memo[len(memo)] = stack[-1]
            if len(memo) > MAX_MEMO:
                raise _too_much(name)
        elif op == 0x71:  # BINPUT
            memo[data[at]] = stack[-1]
            at += 1
        elif op == 0x72:  # LONG_BINPUT
            memo[_U32.unpack_from(data, at)[0]] = stack[-1]
            at += 4
            if len(memo) > MAX_MEMO:
                raise _too_much(name)
        elif op == 0x28:  # MARK
            marks.append(len(stack))
            push(_MARK)
            if len(marks) > MAX_OPEN:
                raise _too_much(name)
        elif op == 0x7D:  # EMPTY_DICT
            push({})
            made += 1
            if made > MAX_CONTAINERS:
                raise _too_much(name)
        elif op in (0x75, 0x73):  # SETITEMS, SETITEM
            if op == 0x75:
                start = marks.pop()
                items = stack[start + 1 :]
                del stack[start:]
            else:
                items = [stack[-2], stack[-1]]
                del stack[-2:]
            target = stack[-1]
            if type(target) is not dict or len(items) % 2:
                raise _damaged(name, "an item is set on what is no dictionary")
            for key in items[::2]:
                if type(key) is not str:
                    int_keys += 1
                    if type(key) is not int or int_keys > MAX_INT_KEYS:
                        raise _refused(name, f"a key of type {type(key).__name__}")
            target.update(zip(items[::2], items[1::2], strict=True))
        elif op == 0x5D:  # EMPTY_LIST
            push([])
            made += 1
            if made > MAX_CONTAINERS:
                raise _too_much(name)
        elif op in (0x65, 0x61):  # APPENDS, APPEND
            start = marks.pop() if op == 0x65 else len(stack) - 2
            items = stack[start + 1 :]
            del stack[start + (op == 0x61) :]
            if type(stack[-1]) is not list:
                raise _damaged(name, "an item is appended to what is no list")
            stack[-1].extend(items)
        elif op == 0x58:  # BINUNICODE
            length = _U32.unpack_from(data, at)[0]
            push(str(_piece(data, at + 4, length, name), "utf-8", "replace"))
            at += 4 + length
        elif op == 0x8C:  # SHORT_BINUNICODE
            length = data[at]
            push(str(_piece(data, at + 1, length, name), "utf-8", "replace"))
            at += 1 + length
        elif op == 0x86:  # TUPLE2
            stack[-2:] = [(stack[-2], stack[-1])]
            made += 1
            if made > MAX_CONTAINERS:
                raise _too_much(name)
        elif op == 0x4E:  # NONE
            push(None)
        elif op == 0x88:  # NEWTRUE
            push(True)
        elif op == 0x89:  # NEWFALSE
            push(False)
        elif op == 0x47:  # BINFLOAT
            push(_F64.unpack_from(data, at)[0])
            at += 8
        elif op == 0x74:  # TUPLE
            start = marks.pop()
            stack[start:] = [tuple(stack[start + 1 :])]
            made += 1
            if made > MAX_CONTAINERS:
                raise _too_much(name)
        elif op == 0x29:  # EMPTY_TUPLE
            push(())
        elif op == 0x85:  # TUPLE1
            stack[-1] = (stack[-1],)
            made += 1
            if made > MAX_CONTAINERS:
                raise _too_much(name)
        elif op == 0x87:  # TUPLE3
            stack[-3:] = [(stack[-3], stack[-2], stack[-1])]
            made += 1
            if made > MAX_CONTAINERS:
                raise _too_much(name)
        elif op == 0x95:  # FRAME
            if _U64.unpack_from(data, at)[0] > size - at - 8:
                raise _damaged(name, "it ends early")
            at += 8
        elif op == 0x2E:  # STOP
            if len(stack) != 1 or stack[0] is _MARK:
                raise _damaged(name, "it ends in the middle of a value")
            return stack[0]
        elif op in (0x42, 0x43, 0x54, 0x55):  # BINBYTES, SHORT_BINBYTES, BINSTRING, SHORT_BINSTRING
            wide = op in (0x42, 0x54)
            length = _U32.unpack_from(data, at)[0] if wide else data[at]
            at += 4 if wide else 1
            piece = _piece(data, at, length, name)
            push(piece if op in (0x42, 0x43) else piece.decode("latin-1"))
            at += length
        elif op in (0x8D, 0x8E):  # BINUNICODE8, BINBYTES8
            length = _U64.unpack_from(data, at)[0]
            piece = _piece(data, at + 8, length, name)
            push(str(piece, "utf-8", "replace") if op == 0x8D else piece)
            at += 8 + length
        elif op == 0x80:  # PROTO
            at += 1
        else:
            raise _refused(name, _wanted(op, data, at, stack))
    raise _too_much(name)


def _too_much(name: str) -> WellfedError:
    return WellfedError(
        f"{name} holds more values than a dump of a million events",
        hint="record fewer events: torch.cuda.memory._record_memory_history(max_entries=100_000)",
    )


def _piece(data: bytes, at: int, length: int, name: str) -> bytes:
    if length > len(data) - at:
        raise _damaged(name, "it ends early")
    return data[at : at + length]


def _wanted(op: int, data: bytes, at: int, stack: list[Any]) -> str:
    """What a refused opcode asked for, by name."""
    if op in (0x63, 0x69):
        module, _, rest = data[at : at + 512].partition(b"\n")
        attribute = rest.partition(b"\n")[0]
        return f"`{_text(module)}.{_text(attribute)}`"
    if op == 0x93 and len(stack) >= 2:
        return f"`{_text(stack[-2])}.{_text(stack[-1])}`"
    return f"the opcode {_REFUSED.get(op) or f'0x{op:02x}'}"


def _text(value: Any) -> str:
    text = (
        value.decode("latin-1") if isinstance(value, bytes) else str(value) if isinstance(value, str) else "?"
    )
    return text[:80]


def _refused(name: str, what: str) -> WellfedError:
    return WellfedError(
        f"{name} asks for {what}; a dump of plain values does not, so it is not read",
        hint="dump it again with torch.cuda.memory._dump_snapshot or PyTorch's flight recorder",
    )


def _damaged(name: str, how: str) -> WellfedError:
    return WellfedError(f"{name} is a damaged pickle: {how}", hint="copy or dump it again")
