"""Kernels as PTX text, which the driver compiles when they are loaded.

Memory kernels take the array in chunks that lie together, a block of threads each: 16 bytes a thread and access, four
independent accesses in flight. With one block a chunk the array is walked nearly in order. PTX 6.3 for sm_52 is the oldest that
every driver since CUDA 10 takes and the newest still do.
"""

THREADS = 256
UNROLL = 4
CHAINS = 16
"""Independent chains of fused multiply-adds of one thread: more than the latency of any device needs."""
STEPS = 64
"""Fused multiply-adds of each chain in one turn of the loop."""

_HEAD = """.version 6.3
.target sm_52
.address_size 64
"""

_NULL = """
.visible .entry wf_null() { ret; }
"""

_SPIN = """
.visible .entry wf_spin(.param .u64 flag, .param .u64 limit_ns)
{
  .reg .pred %p; .reg .u32 %w; .reg .u64 %f, %limit, %start, %now;
  ld.param.u64 %f, [flag];
  ld.param.u64 %limit, [limit_ns];
  mov.u64 %start, %globaltimer;
again:
  ld.volatile.global.u32 %w, [%f];
  setp.ne.u32 %p, %w, 0;
  @%p bra done;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %p, %now, %limit;
  @%p bra again;
done:
  ret;
}
"""

_FILL = """
.visible .entry wf_fill(.param .u64 out, .param .u64 count, .param .u32 seed)
{
  .reg .pred %p; .reg .u32 %t, %b, %n, %s, %h, %x; .reg .u64 %o, %i, %end, %stride, %a;
  ld.param.u64 %o, [out];
  ld.param.u64 %end, [count];
  ld.param.u32 %s, [seed];
  cvta.to.global.u64 %o, %o;
  mov.u32 %t, %tid.x;
  mov.u32 %b, %ctaid.x;
  mov.u32 %n, %ntid.x;
  mad.lo.u32 %t, %b, %n, %t;
  cvt.u64.u32 %i, %t;
  mov.u32 %b, %nctaid.x;
  mul.wide.u32 %stride, %b, %n;
again:
  setp.ge.u64 %p, %i, %end;
  @%p bra done;
  cvt.u32.u64 %h, %i;
  add.u32 %h, %h, %s;
  shr.u32 %x, %h, 16;
  xor.b32 %h, %h, %x;
  mul.lo.u32 %h, %h, 0x7feb352d;
  shr.u32 %x, %h, 15;
  xor.b32 %h, %h, %x;
  mul.lo.u32 %h, %h, 0x846ca68b;
  shr.u32 %x, %h, 16;
  xor.b32 %h, %h, %x;
  and.b32 %h, %h, 0x807fffff;
  or.b32 %h, %h, 0x3f000000;
  shl.b64 %a, %i, 2;
  add.u64 %a, %o, %a;
  st.global.u32 [%a], %h;
  add.u64 %i, %i, %stride;
  bra again;
done:
  ret;
}
"""
"""Floats of either sign from 0.5 to 1 with random mantissas: zeros would draw less power, and random bits are NaNs
that arithmetic may take a short way with."""


def module() -> str:
    """The text of all kernels."""
    kernels = [_read(), _again(), _add(), _copy(), _triad(), _fma("f32", "wf_fma32"), _fma("f64", "wf_fma64")]
    return "".join([_HEAD, _NULL, _SPIN, _FILL, *kernels])


def chunks(size: int) -> int:
    """Blocks of a memory kernel over `size` bytes."""
    return max(-(-size // (16 * THREADS * UNROLL)), 1)


def fma_flops(threads: int, turns: int) -> int:
    """Operations of one launch of an FMA kernel: a fused multiply-add counts two."""
    return 2 * CHAINS * STEPS * threads * turns


def _walk(name: str, pointers: tuple[str, ...], registers: str, body: str, end: str = "") -> str:
    """A kernel over `count` items of 16 bytes of each array. `body` is the work on UNROLL items with the byte offsets
    %o0 to %o3; the loop for what is left over does one item at a time by pointing all offsets beyond the first at it."""
    params = ", ".join(f".param .u64 {pointer}" for pointer in pointers)
    load = "\n".join(
        f"  ld.param.u64 %{pointer}, [{pointer}];\n  cvta.to.global.u64 %{pointer}, %{pointer};"
        for pointer in pointers
    )
    offsets = "\n".join(
        f"  add.u64 %o{k}, %o{k - 1}, %step;" if k else "  shl.b64 %o0, %i, 4;" for k in range(UNROLL)
    )
    same = "\n".join(f"  mov.u64 %o{k}, %o0;" for k in range(1, UNROLL))
    registers_64 = ", ".join(f"%{pointer}" for pointer in pointers)
    offset_names = ", ".join(f"%o{k}" for k in range(UNROLL))
    return f"""
.visible .entry {name}({params}, .param .u64 count)
{{
  .reg .pred %p; .reg .u32 %t, %b, %n, %acc; .reg .u64 {registers_64}, {offset_names};
  .reg .u64 %i, %last, %end, %stride, %step, %jump, %span, %x, %y, %z;
{registers}
{load}
  ld.param.u64 %end, [count];
  mov.u32 %acc, 0;
  mov.u32 %t, %tid.x;
  mov.u32 %b, %ctaid.x;
  mov.u32 %n, %ntid.x;
  cvt.u64.u32 %i, %b;
  cvt.u64.u32 %stride, %n;
  mul.lo.u64 %i, %i, %stride;
  mul.lo.u64 %i, %i, {UNROLL};
  cvt.u64.u32 %x, %t;
  add.u64 %i, %i, %x;
  mov.u32 %b, %nctaid.x;
  cvt.u64.u32 %stride, %n;
  shl.b64 %step, %stride, 4;
  mul.lo.u64 %span, %stride, {UNROLL - 1};
  cvt.u64.u32 %jump, %b;
  mul.lo.u64 %jump, %jump, %stride;
  mul.lo.u64 %jump, %jump, {UNROLL};
many:
  add.u64 %last, %i, %span;
  setp.ge.u64 %p, %last, %end;
  @%p bra few;
{offsets}
{body}
  add.u64 %i, %i, %jump;
  bra many;
few:
  setp.ge.u64 %p, %i, %end;
  @%p bra done;
  shl.b64 %o0, %i, 4;
{same}
{body}
  add.u64 %i, %i, %stride;
  bra few;
done:
{end}
  ret;
}}
"""


def _vector(prefix: str) -> str:
    """Declares registers of four 32-bit words for each access in flight."""
    names = ", ".join(f"%{prefix}{k}{word}" for k in range(UNROLL) for word in "xyzw")
    return f"  .reg .b32 {names};"


def _words(prefix: str, k: int) -> str:
    return "{" + ", ".join(f"%{prefix}{k}{word}" for word in "xyzw") + "}"


def _loads(prefix: str, pointer: str, kind: str = "") -> str:
    return "\n".join(
        f"  add.u64 %x, %{pointer}, %o{k};\n  ld.global{kind}.v4.u32 {_words(prefix, k)}, [%x];"
        for k in range(UNROLL)
    )


def _stores(prefix: str, pointer: str) -> str:
    return "\n".join(
        f"  add.u64 %x, %{pointer}, %o{k};\n  st.global.v4.u32 [%x], {_words(prefix, k)};"
        for k in range(UNROLL)
    )


def _read() -> str:
    fold = "\n".join(f"  xor.b32 %acc, %acc, %v{k}{word};" for k in range(UNROLL) for word in "xyzw")
    # Written only for one value of the sum in four billion: the loads can't be removed, and nothing is stored.
    end = "  setp.eq.u32 %p, %acc, 0x9e3779b9;\n  @%p st.global.u32 [%sink], %acc;"
    return _walk("wf_read", ("source", "sink"), _vector("v"), f"{_loads('v', 'source')}\n{fold}", end)


def _again() -> str:
    """Reads the same items `turns` times, past L1 (`.cg`): for caches, where one pass is shorter than a launch."""
    fold = "\n".join(f"  xor.b32 %acc, %acc, %v{k}{word};" for k in range(UNROLL) for word in "xyzw")
    end = "  setp.eq.u32 %p, %acc, 0x9e3779b9;\n  @%p st.global.u32 [%sink], %acc;"
    text = _walk("wf_again", ("source", "sink"), _vector("v"), f"{_loads('v', 'source', '.cg')}\n{fold}", end)
    once_more = """done:
  mov.u64 %i, %first;
  add.u32 %turn, %turn, 1;
  setp.lt.u32 %p, %turn, %turns;
  @%p bra many;"""
    return (
        text.replace(".param .u64 count)", ".param .u64 count, .param .u32 turns)")
        .replace("%acc; .reg", "%acc, %turn, %turns; .reg")
        .replace("%z;", "%z, %first;")
        .replace(
            "many:", "  ld.param.u32 %turns, [turns];\n  mov.u32 %turn, 0;\n  mov.u64 %first, %i;\nmany:"
        )
        .replace("done:", once_more)
    )


def _add() -> str:
    """One more in four words a thread, for a small operation as a framework would launch it."""
    return """
.visible .entry wf_add(.param .u64 out)
{
  .reg .u64 %o, %t; .reg .u32 %b, %n, %i; .reg .f32 %x<4>;
  ld.param.u64 %o, [out];
  cvta.to.global.u64 %o, %o;
  mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %i, %tid.x;
  mad.lo.u32 %i, %b, %n, %i;
  mul.wide.u32 %t, %i, 16;
  add.u64 %o, %o, %t;
  ld.global.v4.f32 {%x0, %x1, %x2, %x3}, [%o];
  add.f32 %x0, %x0, 0f3F800000; add.f32 %x1, %x1, 0f3F800000;
  add.f32 %x2, %x2, 0f3F800000; add.f32 %x3, %x3, 0f3F800000;
  st.global.v4.f32 [%o], {%x0, %x1, %x2, %x3};
  ret;
}
"""


def _copy() -> str:
    return _walk(
        "wf_copy", ("out", "source"), _vector("v"), f"{_loads('v', 'source')}\n{_stores('v', 'out')}"
    )


def _triad() -> str:
    """a = b + 3c in fp32."""
    three = "0f40400000"
    sums = "\n".join(
        f"  fma.rn.f32 %b{k}{word}, %c{k}{word}, {three}, %b{k}{word};"
        for k in range(UNROLL)
        for word in "xyzw"
    )
    body = f"{_loads('b', 'left')}\n{_loads('c', 'right')}\n{sums}\n{_stores('b', 'out')}"
    registers = f"{_vector('b')}\n{_vector('c')}".replace(".b32", ".f32")
    return _walk("wf_triad", ("out", "left", "right"), registers, body).replace("v4.u32", "v4.f32")


def _fma(kind: str, name: str) -> str:
    """CHAINS independent chains a thread, kept in registers; `turns` of the loop are a parameter."""
    scale = {"f32": "0f3F7FFFEF", "f64": "0d3FEFFFFFF0000000"}[kind]
    chains = ", ".join(f"%c{k}" for k in range(CHAINS))
    begin = "\n".join(f"  add.{kind} %c{k}, %seed, {_constant(kind, k)};" for k in range(CHAINS))
    turn = "\n".join(f"  fma.rn.{kind} %c{k}, %c{k}, {scale}, %seed;" for k in range(CHAINS))
    fold = "\n".join(f"  add.{kind} %c0, %c0, %c{k};" for k in range(1, CHAINS))
    return f"""
.visible .entry {name}(.param .u64 sink, .param .u32 turns)
{{
  .reg .pred %p; .reg .u32 %t, %i, %end; .reg .u64 %s; .reg .{kind} %seed, {chains};
  ld.param.u64 %s, [sink];
  ld.param.u32 %end, [turns];
  cvta.to.global.u64 %s, %s;
  mov.u32 %t, %tid.x;
  cvt.rn.{kind}.u32 %seed, %t;
{begin}
  mov.u32 %i, 0;
again:
{"".join([turn + chr(10)] * STEPS)}
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, %end;
  @%p bra again;
{fold}
  setp.eq.{kind} %p, %c0, {_constant(kind, 0)};
  @%p st.global.{kind} [%s], %c0;
  ret;
}}
"""


def _constant(kind: str, value: int) -> str:
    import struct

    packed = struct.pack(">f" if kind == "f32" else ">d", float(value + 1))
    return ("0f" if kind == "f32" else "0d") + packed.hex().upper()
