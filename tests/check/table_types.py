"""A type checker for table expressions: every field path exists in Machine, and every operator gets what it
can work on. The evaluator finds such faults only when a machine happens to lead it there."""

import ast
import types
import typing
from typing import Any, NamedTuple

import msgspec

from wellfed.check.expression import FUNCTIONS, parse
from wellfed.model import Machine

NUMBER, TEXT, TRUTH, TUPLE, DICT, ANY = "number", "text", "truth", "tuple", "dict", "any"


class Kind(NamedTuple):
    """`name` is one of the constants above or `struct`; `item` is what a tuple or dict holds, or the struct."""

    name: str
    item: Any = None


RESULTS = {
    "len": NUMBER, "abs": NUMBER, "min": NUMBER, "max": NUMBER, "int": NUMBER, "number": NUMBER, "gib": NUMBER,
    "mib": NUMBER, "percent": NUMBER, "lower": TEXT, "env": TEXT, "settings": TEXT, "match": TRUTH,
    "overlap": TRUTH, "version": TUPLE, "values": TUPLE,
}  # fmt: skip
ARGUMENTS = {
    "len": (TUPLE, DICT), "abs": (NUMBER,), "int": (TEXT,), "number": (TEXT,), "gib": (NUMBER,), "mib": (NUMBER,),
    "percent": (NUMBER,), "lower": (TEXT,), "match": (TEXT,), "version": (TEXT,), "overlap": (TUPLE,),
    "values": (DICT,), "min": (NUMBER, TUPLE), "max": (NUMBER, TUPLE), "env": (TEXT,), "settings": (TEXT,),
}  # fmt: skip
assert RESULTS.keys() == ARGUMENTS.keys() == FUNCTIONS.keys()


def kind_of(annotation: Any) -> Kind:
    """The kind of a field by its annotation; None is left out, since unknown is handled everywhere."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        (only,) = [part for part in typing.get_args(annotation) if part is not types.NoneType]
        return kind_of(only)
    if origin is tuple:
        return Kind(TUPLE, kind_of(typing.get_args(annotation)[0]))
    if origin is dict:
        return Kind(DICT, kind_of(typing.get_args(annotation)[1]))
    if annotation is bool:
        return Kind(TRUTH)
    if annotation in (int, float):
        return Kind(NUMBER)
    if annotation is str:
        return Kind(TEXT)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return Kind("struct", annotation)
    raise AssertionError(f"no kind for {annotation}")


def fields(struct: type) -> dict[str, Kind]:
    hints = typing.get_type_hints(struct)
    return {name: kind_of(hints[name]) for name in struct.__struct_fields__ if name not in ("facts", "gaps")}


ROOTS = fields(Machine)


def check(text: str, *, terms: dict[str, str], each: str | None = None) -> Kind:
    """The kind of an expression. Raises AssertionError for a path or an operator that is wrong."""
    names = dict(ROOTS, intent=Kind(TEXT))
    if each is not None:
        names["it"] = ROOTS[each].item
    return _Checker(names, terms).kind(parse(text).tree)


class _Checker:
    def __init__(self, names: dict[str, Kind], terms: dict[str, str]) -> None:
        self.names, self.terms = names, terms

    def kind(self, node: ast.expr) -> Kind:
        return getattr(self, f"_{type(node).__name__.lower()}")(node)

    def want(self, node: ast.expr, *allowed: str) -> Kind:
        kind = self.kind(node)
        assert kind.name in allowed, f"`{ast.unparse(node)}` is {kind.name}, not {' or '.join(allowed)}"
        return kind

    def _constant(self, node: ast.Constant) -> Kind:
        return Kind(
            TRUTH if isinstance(node.value, bool) else TEXT if isinstance(node.value, str) else NUMBER
        )

    def _name(self, node: ast.Name) -> Kind:
        if node.id in self.names:
            return self.names[node.id]
        assert node.id in self.terms, f"no name `{node.id}`"
        return self.kind(parse(self.terms[node.id]).tree)

    def _attribute(self, node: ast.Attribute) -> Kind:
        holder = self.want(node.value, "struct")
        known = fields(holder.item)
        assert node.attr in known, f"{holder.item.__name__} has no field `{node.attr}`"
        return known[node.attr]

    def _subscript(self, node: ast.Subscript) -> Kind:
        return self.want(node.value, TUPLE, DICT).item

    def _boolop(self, node: ast.BoolOp) -> Kind:
        for part in node.values:
            self.want(part, TRUTH)
        return Kind(TRUTH)

    def _unaryop(self, node: ast.UnaryOp) -> Kind:
        return self.want(node.operand, TRUTH if isinstance(node.op, ast.Not) else NUMBER)

    def _binop(self, node: ast.BinOp) -> Kind:
        self.want(node.left, NUMBER)
        return self.want(node.right, NUMBER)

    def _compare(self, node: ast.Compare) -> Kind:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            a, b = self.kind(left), self.kind(right)
            if isinstance(op, ast.In | ast.NotIn):
                assert b.name in (TUPLE, DICT, TEXT), ast.unparse(node)
                assert b.name != TUPLE or b.item is None or a.name == b.item.name, ast.unparse(node)
            elif isinstance(op, ast.Eq | ast.NotEq):
                assert a.name == b.name, f"`{ast.unparse(node)}` compares {a.name} with {b.name}"
            else:
                assert a.name == b.name and a.name in (NUMBER, TUPLE), ast.unparse(node)
            left = right
        return Kind(TRUTH)

    def _ifexp(self, node: ast.IfExp) -> Kind:
        self.want(node.test, TRUTH)
        body, other = self.kind(node.body), self.kind(node.orelse)
        assert body.name == other.name, ast.unparse(node)
        return body

    def _tuple(self, node: ast.Tuple) -> Kind:
        kinds = {self.kind(part).name for part in node.elts}
        assert len(kinds) <= 1, ast.unparse(node)
        return Kind(TUPLE, Kind(kinds.pop()) if kinds else None)

    def _call(self, node: ast.Call) -> Kind:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if isinstance(node.args[0], ast.GeneratorExp):
            return self._loop(name, node.args[0])
        for arg in node.args:
            self.want(arg, *ARGUMENTS[name])
        result = RESULTS[name]
        item = {"version": Kind(NUMBER)}.get(name)
        return Kind(result, self.kind(node.args[0]).item if name == "values" else item)

    def _loop(self, name: str, node: ast.GeneratorExp) -> Kind:
        loop = node.generators[0]
        assert isinstance(loop.target, ast.Name)
        assert loop.target.id not in {*self.names, *self.terms}, f"`{loop.target.id}` hides a name"
        items = self.want(loop.iter, TUPLE, DICT)
        inner = _Checker({**self.names, loop.target.id: items.item}, self.terms)
        for condition in loop.ifs:
            inner.want(condition, TRUTH)
        if name in ("any", "all"):
            return inner.want(node.elt, TRUTH)
        if name in ("sum", "min", "max"):
            return inner.want(node.elt, NUMBER)
        element = inner.kind(node.elt)
        return Kind(NUMBER) if name == "distinct" else Kind(TUPLE, element)
