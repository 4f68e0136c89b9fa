"""Arbitrary nouns: a hypothesis strategy for any struct of the model, from its annotations."""

import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

# Texts that a file or a command could hold: no lone surrogates, which no UTF-8 file can carry.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type. Raises KeyError for a type the model has not used before."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values_of, args))
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and args[1:] == (Ellipsis,):
        return st.lists(values_of(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, args))
    if origin is dict:
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=2)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs_of(kind)
    return {
        str: TEXT,
        int: st.integers(-(2**62), 2**62),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        types.NoneType: st.none(),
        Any: JSON,
    }[kind]


def structs_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Structs with some of their optional fields given."""
    hints = get_type_hints(kind)
    fields = msgspec.structs.fields(kind)
    required = {f.name: values_of(hints[f.name]) for f in fields if f.required}
    optional = {
        f.name: st.deferred(lambda hint=hints[f.name]: values_of(hint)) for f in fields if not f.required
    }
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: kind(**given))
