"""Names of kernels without what changes from build to build (types, tiles, stages)."""

import re
from functools import lru_cache

_FUNCTOR = re.compile(
    r"(?<![A-Za-z])([A-Z]\w*Functor(?:_\w+)?|CUDAFunctor\w*|\w+_kernel_(?:cuda|impl)\w*|\w+CUDAKernelImpl|\w+_functor|\w+Ops?)(?=[<(,>:]|$)"
)
_WRAPPER = re.compile(r"^(?:[AB]?UnaryFunctor|BinaryFunctor|gpu_kernel_impl\w*|ReduceOp|CUDAFunctor)$")
_WITH_FUNCTOR = re.compile(r"elementwise_kernel|reduce_kernel|multi_tensor_apply_kernel")
_HOLDER = re.compile(r"^cutlass\w*::(?:device_kernel|Kernel2?)$")
_NOISE = re.compile(
    r"(?:\d+x\d+\w*|sm\d+|(?:tile|warpgroup|warp|cluster|stage|ldg|align|kernel|swizzle)s?(?:size)?\d[\dx]*|stages?|MT\d\w*|MI\d\w*|SN|[A-Z]{2,9}\d\w*|v\d+|\d+)"
)
_TUNING = re.compile(r"_(?:HA|SAV|UserArgs|MT\d)")
_RETURNS = re.compile(r"^(?:void|(?:typename )?std::enable_if<.*?>::type) ")
_PARENS = re.compile(r"\(anonymous namespace\)::|<unnamed>::")


@lru_cache(65536)
def plain_name(name: str) -> str:
    """The function's name: no return type, template arguments, parameters, tile sizes or running numbers. Where one
    kernel runs whatever functor it is given, that functor's name follows in brackets."""
    if name.startswith(("Memcpy", "Memset", "_Z")):  # from where to where is what matters; and mangled stays
        return name
    if name.startswith(
        "Cijk_"
    ):  # rocBLAS: the layouts and types come first, then some hundred letters of tuning
        return _TUNING.split(name, maxsplit=1)[0]
    text = _RETURNS.sub("", _PARENS.sub("", name)).strip()
    head = _head(text)
    inner = text[len(head) :]
    if _HOLDER.match(head) and inner.startswith("<"):
        first = re.match(r"<\s*(?:enable_\w+<)*\s*([\w:]+)", inner)
        head = first[1] if first else head
    if "::" in head or inner:
        parts = [part for part in head.split("::") if part] or [head]
        short = "::".join(parts[-2:]) if parts[-1].lower() == "kernel" else parts[-1]
        if _WITH_FUNCTOR.search(short):
            found = next((f for f in _FUNCTOR.findall(inner) if not _WRAPPER.match(f)), None)
            return f"{short}[{found}]" if found else short
        head = short
    kept = [piece for piece in head.split("_") if piece and not _NOISE.fullmatch(piece)]
    return "_".join(kept) or head or name


def _head(text: str) -> str:
    """What stands before the first template argument or parameter; the operator names `operator<` are rare enough."""
    for at, char in enumerate(text):
        if char in "<(":
            return text[:at].rstrip() if at else text
    return text
