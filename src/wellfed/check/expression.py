"""The small language of table checks: facts of a Machine in; true, false, a value or unknown out.

An expression is Python syntax of the plainest kind, evaluated here over its syntax tree and never by
`eval`: names, fields of the Machine, literals, arithmetic, comparisons, `and`, `or`, `not`, `in`,
`a if b else c`, `any/all/sum/min/max/distinct(x for y in z if w)`, and the functions of `FUNCTIONS`. Logic
is Kleene's: what touches an unknown field is unknown unless the rest decides it, so that filling in an
unknown can never turn a decided verdict around.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from wellfed.model import Machine, Value
from wellfed.model.environment import REDACTED

MAX_CHARS = 1000
MAX_NODES = 250
MAX_STEPS = 500_000
"""Evaluation steps of one expression: a machine of a recording can be made to look absurdly large."""

OPEN_COLLECTIONS = frozenset(
    [
        "numa",
        "pci",
        "gpus",
        "links",
        "nics",
        "rdma",
        "disks",
        "mounts",
        "irqs",
        "arrays",
        "processes",
        "p2p",
        "diagnostics",
        "environment",
        "kernel.sysctls",
        "kernel.mitigations",
        "kernel.config",
        "kernel.events",
        "software.driver_params",
        "software.env_files",
        "software.tools",
    ]
)
"""Collections of the Machine that are empty both when nothing is there and when nobody could look. They
count as seen when they hold something or have a fact of their own with status `ok`."""

MAX_SHOWN = 200
"""Characters of one value in a sentence: the file of a stranger may hold a million."""

_NUMBERS = (int, float)


class ExpressionError(Exception):
    """The expression itself is wrong (syntax, a name, a type): our mistake, found by the table's test."""


class Unknown(Value, frozen=True, kw_only=True):
    """Not known, and the field paths that would be needed to know."""

    paths: tuple[str, ...] = ()


class Expression(Value, frozen=True, kw_only=True):
    """Checked source text and its syntax tree."""

    text: str
    tree: Any


class Scope:
    """What names mean during one evaluation. `bound` maps a local name (`it`, a loop variable) to its value
    and field path; `terms` are named expressions. `looked_at` collects the paths that were read, in order."""

    def __init__(
        self,
        machine: Machine,
        *,
        terms: dict[str, str] | None = None,
        bound: dict[str, tuple[Any, str]] | None = None,
        intent: str = "training",
    ) -> None:
        self.machine = machine
        self.terms = terms or {}
        self.bound = bound or {}
        self.intent = intent
        self.looked_at: dict[str, None] = {}
        self.steps = 0

    def inside(self, name: str, value: Any, path: str) -> "Scope":
        """The same scope with one more local name. What it looks at is noted here as well."""
        inner = Scope(
            self.machine, terms=self.terms, bound={**self.bound, name: (value, path)}, intent=self.intent
        )
        inner.looked_at = self.looked_at
        inner.steps = self.steps
        return inner


@lru_cache(maxsize=2048)
def parse(text: str) -> Expression:
    """A checked expression. Raises ExpressionError for anything outside the language."""
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"longer than {MAX_CHARS} characters")
    if "\\" in text:
        raise ExpressionError("no backslash: what it means depends on too many quotings")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"{text[:60]!r}: {error}") from error
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise ExpressionError(f"more than {MAX_NODES} nodes")
    for node in nodes:
        _admit(node)
    return Expression(text=text, tree=tree)


def evaluate(text: str, scope: Scope) -> Any:
    """The value of an expression, or Unknown."""
    return _value(parse(text).tree, scope)


def judge(text: str, scope: Scope) -> bool | Unknown:
    """The truth of an expression. Raises ExpressionError when it is neither true, false nor unknown."""
    return _truth(evaluate(text, scope), text)


def fill(template: str, scope: Scope) -> str:
    """A sentence with each `{expression}` replaced by its value; unknown reads `?`."""
    return re.sub(r"\{([^{}]+)\}", lambda found: show(evaluate(found.group(1), scope)), template)


def show(value: Any) -> str:
    """A value for people."""
    if isinstance(value, Unknown) or value is None:
        return "?"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Value):
        return ", ".join(f"{field} {show(getattr(value, field))}" for field in value.__struct_fields__)
    if isinstance(value, dict):
        return show(tuple(f"{key}={show(item)}" for key, item in value.items()))
    if isinstance(value, tuple | list):
        head = ", ".join(show(item) for item in value[:12])
        return head + (f" and {len(value) - 12} more" if len(value) > 12 else "") if value else "none"
    text = str(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


# -- what is admitted -------------------------------------------------------------------------------------

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.USub, ast.And, ast.Or, ast.Not)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
_PLAIN = (
    *_OPERATORS,
    *_COMPARISONS,
    ast.Load,
    ast.Store,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.IfExp,
    ast.Tuple,
)


def _admit(node: ast.AST) -> None:
    match node:
        case ast.Constant(value=bool() | str()):
            pass
        case ast.Constant(value=int() | float() as number) if abs(number) < 1e18:
            pass
        case ast.Name(id=name) | ast.Attribute(attr=name) if not name.startswith("_"):
            pass
        case ast.Subscript(slice=ast.Constant(value=str() | int())):
            pass
        case ast.Call(func=ast.Name(id=name), keywords=[], args=args) if name in _CALLABLE:
            _admit_call(name, args)
        case ast.GeneratorExp(generators=[ast.comprehension(target=ast.Name(), is_async=0)]):
            pass
        case ast.comprehension():
            pass
        case _ if isinstance(node, _PLAIN):
            pass
        case _:
            raise ExpressionError(f"{type(node).__name__} is not part of the language")


def _admit_call(name: str, args: list[ast.expr]) -> None:
    low, high = (1, 1) if name in _LOOPS else FUNCTIONS[name][0]
    if not low <= len(args) <= high:
        raise ExpressionError(f"{name}() takes {low} to {high} arguments, not {len(args)}")
    if any(isinstance(arg, ast.Starred) for arg in args):
        raise ExpressionError("no starred arguments")
    if name in _LOOPS and not isinstance(args[0], ast.GeneratorExp):
        raise ExpressionError(f"{name}() takes `x for y in z`")
    if name in ("match", "env", "settings"):
        first = args[0]
        if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
            raise ExpressionError(f"the first argument of {name}() is a literal text")
        if name == "match":
            try:
                re.compile(first.value)
            except re.error as error:
                raise ExpressionError(f"{first.value!r}: {error}") from error


# -- values -----------------------------------------------------------------------------------------------


def _value(node: ast.expr, scope: Scope) -> Any:
    scope.steps += 1
    if scope.steps > MAX_STEPS:
        return Unknown()
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name() | ast.Attribute() | ast.Subscript():
            return _place(node, scope)[0]
        case ast.BoolOp(op=op, values=parts):
            return _junction(parts, scope, decides=isinstance(op, ast.Or))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            truth = _truth(_value(operand, scope), "not")
            return truth if isinstance(truth, Unknown) else not truth
        case ast.UnaryOp(operand=operand):
            number = _value(operand, scope)
            return number if isinstance(number, Unknown) else -_number(number)
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(_value(left, scope), op, _value(right, scope))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _comparison(left, ops, comparators, scope)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            truth = _truth(_value(test, scope), "if")
            return truth if isinstance(truth, Unknown) else _value(body if truth else orelse, scope)
        case ast.Tuple(elts=parts):
            values = tuple(_value(part, scope) for part in parts)
            return _first_unknown(values) or values
        case ast.Call(func=ast.Name(id=name), args=args):
            return _call(name, args, scope)
        case _:
            raise ExpressionError(f"{type(node).__name__} has no value here")


def _place(node: ast.expr, scope: Scope) -> tuple[Any, str]:
    """The value at a field, and its path. Unknown when it, or what holds it, is."""
    match node:
        case ast.Name(id=name):
            return _name(name, scope)
        case ast.Attribute(value=base, attr=name):
            holder, path = _place(base, scope)
            if isinstance(holder, Unknown):
                return holder, path
            if not isinstance(holder, Value) or name not in holder.__struct_fields__:
                raise ExpressionError(f"{path or 'value'} has no field {name}")
            return _seen(getattr(holder, name), f"{path}.{name}", scope)
        case ast.Subscript(value=base, slice=ast.Constant(value=str() | int() as key)):
            holder, path = _place(base, scope)
            scope.looked_at.pop(path, None)  # the item is the evidence, not all that stands beside it
            if isinstance(holder, Unknown):
                # An unseen dict: the key's own gap, if there is one, says more than the dict's.
                return (Unknown(paths=(f"{path}[{key}]",)) if isinstance(key, str) else holder), path
            return _seen(_item(holder, key, path), f"{path}[{key}]", scope)
        case _:
            return _value(node, scope), ""


def _name(name: str, scope: Scope) -> tuple[Any, str]:
    if name in scope.bound:
        return scope.bound[name]
    if name == "intent":
        return scope.intent, ""
    if name in scope.terms:
        return evaluate(scope.terms[name], scope), ""
    if name in scope.machine.__struct_fields__ and name not in ("facts", "gaps"):
        return _seen(getattr(scope.machine, name), name, scope)
    raise ExpressionError(f"no such name: {name}")


def _seen(value: Any, path: str, scope: Scope) -> tuple[Any, str]:
    if not isinstance(value, Value):
        scope.looked_at[path] = None
    if value is None or (not value and path in OPEN_COLLECTIONS and not was_seen(scope.machine, path)):
        return Unknown(paths=(path,)), path
    return value, path


def was_seen(machine: Machine, path: str) -> bool:
    """Whether somebody looked at the field and saw it, as its fact tells."""
    fact = machine.facts.get(path)
    return fact is not None and fact.status == "ok"


def _item(holder: Any, key: str | int, path: str) -> Any:
    if isinstance(holder, dict) and isinstance(key, str):
        return holder.get(key)
    if isinstance(holder, tuple) and isinstance(key, int):
        return holder[key] if -len(holder) <= key < len(holder) else None
    raise ExpressionError(f"{path} has no item {key!r}")


# -- logic ------------------------------------------------------------------------------------------------


def _truth(value: Any, text: str) -> bool | Unknown:
    if isinstance(value, bool | Unknown):
        return value
    raise ExpressionError(f"{text!r} is neither true nor false but {value!r}")


def _junction(parts: list[ast.expr], scope: Scope, *, decides: bool) -> bool | Unknown:
    """`or` when true decides, `and` when false does."""
    return _fold((_truth(_value(part, scope), "and/or") for part in parts), decides=decides)


def _fold(truths: Iterator[bool | Unknown], *, decides: bool) -> bool | Unknown:
    unknown: list[str] = []
    open_ = False
    for truth in truths:
        if isinstance(truth, Unknown):
            open_ = True
            unknown += truth.paths
        elif truth is decides:
            return decides
    return Unknown(paths=tuple(dict.fromkeys(unknown))) if open_ else not decides


def _comparison(left: ast.expr, ops: list[ast.cmpop], rights: list[ast.expr], scope: Scope) -> Any:
    def pairs() -> Iterator[bool | Unknown]:
        a = _value(left, scope)
        for op, node in zip(ops, rights, strict=True):
            b = _value(node, scope)
            yield _first_unknown((a, b)) or _compare(a, op, b)
            a = b

    return _fold(pairs(), decides=False)


def _compare(a: Any, op: ast.cmpop, b: Any) -> bool:
    match op:
        case ast.Eq():
            return bool(a == b)
        case ast.NotEq():
            return bool(a != b)
        case ast.In() | ast.NotIn():
            if not isinstance(b, tuple | dict | str) or (isinstance(b, str) and not isinstance(a, str)):
                raise ExpressionError(f"`in` needs a collection, not {b!r}")
            return (a in b) is isinstance(op, ast.In)
    orderable = (isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS)) or (
        type(a) is type(b) and isinstance(a, tuple | str)
    )
    if not orderable:
        raise ExpressionError(f"cannot order {a!r} and {b!r}")
    match op:
        case ast.Lt():
            return bool(a < b)
        case ast.LtE():
            return bool(a <= b)
        case ast.Gt():
            return bool(a > b)
        case _:
            return bool(a >= b)


def _arithmetic(a: Any, op: ast.operator, b: Any) -> Any:
    unknown = _first_unknown((a, b))
    if unknown is not None:
        return unknown
    x, y = _number(a), _number(b)
    try:
        match op:
            case ast.Add():
                return x + y
            case ast.Sub():
                return x - y
            case ast.Mult():
                return x * y
            case ast.Div():
                return x / y
            case ast.FloorDiv():
                return x // y
            case _:
                return x % y
    except (ZeroDivisionError, OverflowError):
        return Unknown()


def _number(value: Any) -> int | float:
    if isinstance(value, _NUMBERS) and not isinstance(value, bool):
        return value
    raise ExpressionError(f"{value!r} is no number")


def _first_unknown(values: tuple[Any, ...]) -> Unknown | None:
    unknown = [value for value in values if isinstance(value, Unknown)]
    if not unknown:
        return None
    return Unknown(paths=tuple(dict.fromkeys(path for one in unknown for path in one.paths)))


# -- functions and loops ----------------------------------------------------------------------------------


def _call(name: str, args: list[ast.expr], scope: Scope) -> Any:
    if name in _LOOPS and isinstance(args[0], ast.GeneratorExp):
        return _LOOPS[name](args[0], scope)
    if name == "env":
        return _env(args, scope)
    if name == "settings":
        return _settings(args, scope)
    if name in ("min", "max") and isinstance(args[0], ast.GeneratorExp):
        return _extreme(args[0], scope, max if name == "max" else min)
    values = tuple(_value(arg, scope) for arg in args)
    unknown = _first_unknown(values)
    if unknown is not None:
        return unknown
    try:
        result = FUNCTIONS[name][1](*values)
    except (TypeError, AttributeError) as error:
        raise ExpressionError(f"{name}(): {error}") from error
    except ValueError:
        result = None  # text that is no number, a minimum of nothing
    if result is None:
        return Unknown(paths=tuple(_place(arg, scope)[1] for arg in args[:1] if isinstance(arg, _PLACES)))
    return result


_PLACES = (ast.Name, ast.Attribute, ast.Subscript)


def _env(args: list[ast.expr], scope: Scope) -> Any:
    """An environment variable, or the default when it is not set; unknown when the environment is."""
    name = _value(args[0], scope)
    environment, _ = _seen(scope.machine.environment, "environment", scope)
    scope.looked_at.pop("environment", None)
    scope.looked_at[f"environment[{name}]"] = None
    if isinstance(environment, Unknown):
        return environment
    if name in environment:
        # A recording keeps that a variable was set, not always to what.
        return (
            Unknown(paths=(f"environment[{name}]",)) if environment[name] == REDACTED else environment[name]
        )
    return _value(args[1], scope) if len(args) > 1 else ""


def _settings(args: list[ast.expr], scope: Scope) -> Any:
    """`A=1, B=2` of the environment variables named that are set; for messages."""
    values = {_value(arg, scope): _env([arg], scope) for arg in args}
    return (
        ", ".join(f"{name}={show(value)}" for name, value in values.items() if value != "") or "none is set"
    )


def _loop(node: ast.GeneratorExp, scope: Scope) -> Iterator[tuple[bool | Unknown, Any]] | Unknown:
    """For each item whether it belongs (the `if`), and the value of the element."""
    loop = node.generators[0]
    items, path = _place(loop.iter, scope)
    if isinstance(items, Unknown):
        return items
    if not isinstance(items, tuple | dict):
        raise ExpressionError(f"cannot loop over {items!r}")
    assert isinstance(loop.target, ast.Name)
    return _each_item(node, tuple(items), path, loop.target.id, scope)


def _each_item(
    node: ast.GeneratorExp, items: tuple[Any, ...], path: str, name: str, scope: Scope
) -> Iterator[tuple[bool | Unknown, Any]]:
    for index, item in enumerate(items):
        inner = scope.inside(name, item, f"{path}[{index}]")
        belongs = _junction(node.generators[0].ifs, inner, decides=False)
        element = None if belongs is False else _value(node.elt, inner)
        scope.steps = inner.steps
        yield belongs, element
        if scope.steps > MAX_STEPS:
            yield Unknown(), Unknown()
            return


def _any(node: ast.GeneratorExp, scope: Scope) -> bool | Unknown:
    items = _loop(node, scope)
    if isinstance(items, Unknown):
        return items
    return _fold((_both(b, e) for b, e in items), decides=True)


def _all(node: ast.GeneratorExp, scope: Scope) -> bool | Unknown:
    items = _loop(node, scope)
    if isinstance(items, Unknown):
        return items
    return _fold((_implies(b, e) for b, e in items), decides=False)


def _both(belongs: bool | Unknown, element: Any) -> bool | Unknown:
    if belongs is False:
        return False
    return _fold(iter((belongs, _truth(element, "any"))), decides=False)


def _implies(belongs: bool | Unknown, element: Any) -> bool | Unknown:
    if belongs is False:
        return True
    doubt = belongs if isinstance(belongs, Unknown) else False
    return _fold(iter((doubt, _truth(element, "all"))), decides=True)


def _elements(node: ast.GeneratorExp, scope: Scope) -> tuple[Any, ...] | Unknown:
    items = _loop(node, scope)
    if isinstance(items, Unknown):
        return items
    kept = [
        belongs if isinstance(belongs, Unknown) else element
        for belongs, element in items
        if belongs is not False
    ]
    return _first_unknown(tuple(kept)) or tuple(kept)


def _sum(node: ast.GeneratorExp, scope: Scope) -> Any:
    elements = _elements(node, scope)
    return elements if isinstance(elements, Unknown) else sum(_number(element) for element in elements)


def _distinct(node: ast.GeneratorExp, scope: Scope) -> Any:
    elements = _elements(node, scope)
    return elements if isinstance(elements, Unknown) else len(set(elements))


def _list(node: ast.GeneratorExp, scope: Scope) -> Any:
    return _elements(node, scope)


def _extreme(node: ast.GeneratorExp, scope: Scope, pick: Callable[..., Any]) -> Any:
    elements = _elements(node, scope)
    if isinstance(elements, Unknown):
        return elements
    return pick(map(_number, elements)) if elements else Unknown()


_LOOPS: dict[str, Callable[[ast.GeneratorExp, Scope], Any]] = {
    "any": _any,
    "all": _all,
    "sum": _sum,
    "distinct": _distinct,
    "list": _list,
}
"""Functions over `x for y in z if w`: `distinct` counts different values, `list` keeps them for a message."""


def version(text: str) -> tuple[int, ...] | None:
    """`580.95.05` as (580, 95, 5); None when there is no number in front."""
    found = re.match(r"\D{0,8}?(\d{1,9}(?:\.\d{1,9}){0,5})", text)
    return tuple(int(part) for part in found.group(1).split(".")) if found else None


_WHOLE = re.compile(r"\s*(-?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19}))\s*")
_DECIMAL = re.compile(r"\s*-?[0-9]{1,18}(?:\.[0-9]{0,18})?\s*")


def whole(text: str) -> int | None:
    """A number of at most 64 bits in plain digits; None for all else, which `int()` would take in many shapes."""
    found = _WHOLE.fullmatch(text)
    if found is None:
        return None
    return int(found[1], 16) if "x" in found[1].lower() else int(found[1])


FUNCTIONS: dict[str, tuple[tuple[int, int], Callable[..., Any]]] = {
    "len": ((1, 1), len),
    "abs": ((1, 1), lambda value: abs(_number(value))),
    "min": ((1, 8), lambda *values: min(map(_number, values))),
    "max": ((1, 8), lambda *values: max(map(_number, values))),
    "int": ((1, 1), whole),
    "number": ((1, 1), lambda text: float(text) if _DECIMAL.fullmatch(text) else None),
    "lower": ((1, 1), lambda text: text.lower()),
    "match": ((2, 2), lambda pattern, text: re.search(pattern, text, re.IGNORECASE) is not None),
    "version": ((1, 1), version),
    "env": ((1, 2), lambda name, default="": default),
    "values": ((1, 1), lambda table: tuple(table.values())),
    "settings": ((1, 12), lambda *names: ", ".join(names)),
    "overlap": ((2, 2), lambda a, b: not set(a).isdisjoint(b)),
    "gib": ((1, 1), lambda size: round(_number(size) / (1 << 30), 1)),
    "mib": ((1, 1), lambda size: round(_number(size) / (1 << 20), 1)),
    "percent": (
        (2, 2),
        lambda part, whole: round(100 * _number(part) / _number(whole), 1) if whole else None,
    ),
}
"""Name -> (fewest and most arguments, function). None or ValueError from one means unknown."""

_CALLABLE = frozenset(_LOOPS) | frozenset(FUNCTIONS)
