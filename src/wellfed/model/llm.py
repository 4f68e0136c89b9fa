"""A transformer as its weights and caches see it: what a planner needs to know of a model, and nothing else.

Widths are in elements, per layer; bytes per element are in `Precision`. A model is embeddings, a list of layer groups and a
head. Layers that are alike in attention and feed-forward are one group with a `count`; their order does not matter here.
"""

from typing import Literal

from wellfed.model.base import Value

Mixing = Literal["full", "window", "linear"]


class Heads(Value, frozen=True, kw_only=True):
    """Attention with heads of its own (MHA, MQA, GQA): `query` heads of `dim` read `kv` heads of `dim` (keys) and `value_dim`
    (values; None when equal to `dim`). `bias` and `gate`: whether the projections have a bias, and the output a gate as wide as the queries."""

    query: int
    kv: int
    dim: int
    value_dim: int | None = None
    bias: bool = False
    gate: bool = False


class Latent(Value, frozen=True, kw_only=True):
    """Multi-head latent attention (DeepSeek V2 and later): one latent of `kv_rank` and one rotary key of `rope_dim` a token are
    cached. `query_rank` is None when queries are projected directly. `index_heads`, `index_dim`, `index_top_k`: the indexer of sparse attention (DSA), 0 without one."""

    query: int
    query_rank: int | None
    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    index_heads: int = 0
    index_dim: int = 0
    index_top_k: int = 0


class Recurrent(Value, frozen=True, kw_only=True):
    """Linear attention or a state space: a state of fixed size a sequence instead of a cache. `parameters` a layer,
    `state_elements` a sequence and layer (kept in `state_bytes` each), `flops_per_token` a layer beside the projections."""

    parameters: int
    state_elements: int
    state_bytes: float
    flops_per_token: int


class Dense(Value, frozen=True, kw_only=True):
    """A feed-forward block of `width`; `matrices` is 3 with a gate (SwiGLU, GeGLU), 2 without."""

    width: int
    matrices: int = 3
    bias: bool = False


class Experts(Value, frozen=True, kw_only=True):
    """A mixture: `count` experts of `width`, `top_k` a token; `shared_width` is the sum of what every token visits (0: none); `dense_width` a dense
    block beside them (0: none)."""

    count: int
    top_k: int
    width: int
    shared_width: int = 0
    dense_width: int = 0
    matrices: int = 3
    bias: bool = False
    router_bias: bool = False


class LayerGroup(Value, frozen=True, kw_only=True):
    """`count` layers that are alike. `window` is the number of past tokens that a layer reads, None for all of them; `kv_from_other_layer` when the
    layer caches nothing of its own (Gemma 3n and 4)."""

    count: int
    attention: Heads | Latent | Recurrent
    feed_forward: Dense | Experts
    window: int | None = None
    norms: int = 2
    kv_from_other_layer: bool = False

    @property
    def mixing(self) -> Mixing:
        return (
            "linear" if isinstance(self.attention, Recurrent) else "full" if self.window is None else "window"
        )


class Precision(Value, frozen=True, kw_only=True):
    """Bytes an element, scales included: `linear` (attention and dense projections), `experts`, `embedding`, `head`, `kv`, `activation`; and the
    dtype that matrix products run in (`compute`, `experts_compute`: bf16, fp8, int8, fp4; weights kept at 4 bits and multiplied in bf16 are bf16)."""

    linear: float = 2.0
    experts: float = 2.0
    attention: float | None = None
    embedding: float = 2.0
    head: float = 2.0
    kv: float = 2.0
    activation: float = 2.0
    compute: str = "bf16"
    experts_compute: str = "bf16"
    name: str = "bf16"


class Llm(Value, frozen=True, kw_only=True):
    """One model. `name` is how it was asked for, `architecture` its class in config.json, `max_context` tokens or None. `extra` are parameters
    outside the layers by part (vision tower, multi-token prediction); `source` where all of this is from."""

    name: str
    architecture: str
    hidden: int
    vocabulary: int
    groups: tuple[LayerGroup, ...]
    tied_embeddings: bool
    precision: Precision = Precision()
    max_context: int | None = None
    extra: dict[str, int] = {}
    source: str = ""
    notes: tuple[str, ...] = ()

    @property
    def layers(self) -> int:
        return sum(group.count for group in self.groups)
