"""What the layers of neural networks and the steps of solvers ask of an H100, kernel by kernel: each takes as long
as its arithmetic or its memory traffic needs, whichever is more (roofline), at the shares of the peaks that a program
reaches, and fills as many multiprocessors as it has blocks. Pure; appends to a Program.

Peaks: 989 TFLOP/s in BF16, 3.35 TB/s, 132 multiprocessors (NVIDIA, H100 SXM data sheet).
"""

import dataclasses

FLOPS_PER_NS, BYTES_PER_NS, MULTIPROCESSORS = 989e3, 3350.0, 132
_TILE, _HALF, _FLOAT = 128, 2, 4  # rows and columns of a product that one block computes; bytes of a number


@dataclasses.dataclass(frozen=True)
class Speed:
    """Shares of the peaks, and what every kernel takes at least."""
    compute: float
    memory: float
    start_ns: int

    def product_ns(self, rows, columns, inner):
        blocks = blocks_of(rows, columns)
        # The last wave of blocks leaves multiprocessors idle.
        filled = blocks / (-(-blocks // MULTIPROCESSORS) * MULTIPROCESSORS)
        arithmetic = 2.0 * rows * columns * inner / (FLOPS_PER_NS * self.compute * filled)
        return self.start_ns + max(arithmetic, self.traffic(_HALF * (rows * inner + inner * columns + rows * columns)))

    def traffic(self, size):
        return size / (BYTES_PER_NS * self.memory)

    def bytes_ns(self, size):
        return self.start_ns + self.traffic(size)


def blocks_of(rows, columns):
    return -(-int(rows) // _TILE) * -(-int(columns) // _TILE)


@dataclasses.dataclass(frozen=True)
class Transformer:
    name: str
    layers: int
    width: int
    inner: int          # of the feed-forward part
    heads_share: float  # key and value heads by query heads
    gated: bool         # the feed-forward part has three matrices instead of two
    vocabulary: int

    @property
    def weights(self):
        attention = self.width * self.width * (2 + 2 * self.heads_share)
        return self.layers * (attention + self.width * self.inner * (3 if self.gated else 2)) + self.vocabulary * self.width

    @property
    def cache_bytes_per_token(self):
        return 2 * self.layers * self.width * self.heads_share * _HALF


@dataclasses.dataclass(frozen=True)
class Convolutional:
    name: str
    layers: int
    flops: float    # of one image, forward
    traffic: float  # bytes of activations of one image
    weights: float


class Kernels:
    """Launches layers into a program. `helpers`: small kernels beside each layer's own (casts, transposes, masks), as
    programs that are not compiled have them."""

    def __init__(self, program, speed, helpers=0, stream=0):
        self.program, self.speed, self.helpers, self.stream = program, speed, helpers, stream

    def product(self, name, rows, columns, inner, times=1.0):
        self.program.launch(name, blocks_of(rows, columns), 256, times * self.speed.product_ns(rows, columns, inner),
                            self.stream, shared_bytes=98304)

    def over(self, name, size, width=_HALF):
        """Reads and writes so many bytes."""
        self.program.launch(name, size / width / 1024, 256, self.speed.bytes_ns(size), self.stream)

    def attention(self, name, tokens, context, width, times=1.0):
        arithmetic = times * 4.0 * tokens * context * width / (FLOPS_PER_NS * self.speed.compute * 0.6)
        traffic = self.speed.traffic(_HALF * width * (tokens * 2 + context * 2))
        self.program.launch(name, max(1, tokens / _TILE) * max(1, width / 128), 128,
                            self.speed.start_ns + max(arithmetic, traffic), self.stream, shared_bytes=73728)

    def transformer_layer(self, model, tokens, context):
        size = _HALF * tokens * model.width
        self.over("norm", 2 * size)
        self.product("project_qkv", tokens, model.width * (1 + 2 * model.heads_share), model.width)
        for _ in range(self.helpers):
            self.over("elementwise", 2 * size)
        self.attention("attention", tokens, context, model.width)
        self.product("project_out", tokens, model.width, model.width)
        self.over("residual_norm", 3 * size)
        self.product("feed_up", tokens, model.inner * (2 if model.gated else 1), model.width)
        self.over("activation", 3 * _HALF * tokens * model.inner)
        self.product("feed_down", tokens, model.width, model.inner)
        self.over("residual", 3 * size)

    def transformer_layer_backward(self, model, tokens, context):
        size = _HALF * tokens * model.width
        for name, columns, inner in (("feed_down", model.width, model.inner),
                                     ("feed_up", model.inner * (2 if model.gated else 1), model.width),
                                     ("project_out", model.width, model.width)):
            self.product(f"{name}_data_gradient", tokens, inner, columns)
            self.product(f"{name}_weight_gradient", inner, columns, tokens)
            self.over("gradient_elementwise", 3 * size)
        self.attention("attention_backward", tokens, context, model.width, 2.5)
        columns = model.width * (1 + 2 * model.heads_share)
        for _ in range(self.helpers):
            self.over("gradient_elementwise", 3 * size)
        self.product("project_qkv_data_gradient", tokens, model.width, columns)
        self.product("project_qkv_weight_gradient", model.width, columns, tokens)
        self.over("norm_backward", 4 * size)

    def convolution(self, model, images, layer, backward=False):
        """Early layers move more data, late ones have more channels; the arithmetic is about the same."""
        part = 2.0 * (model.layers - layer) / (model.layers * (model.layers + 1))
        size, flops = images * model.traffic * part, images * model.flops / model.layers
        blocks = max(4, size / 2 / (_TILE * 64))
        filled = min(1.0, blocks / MULTIPROCESSORS)
        length = self.speed.start_ns + max(flops / (FLOPS_PER_NS * self.speed.compute * filled), self.speed.traffic(2 * size))
        directions = ("convolution_data_gradient", "convolution_weight_gradient") if backward else ("convolution",)
        for name in directions:
            self.program.launch(name, blocks, 256, length, self.stream, shared_bytes=65536)
        self.over("batch_norm_backward" if backward else "batch_norm", 2 * size)
        self.over("relu_backward" if backward else "relu", 2 * size)

    def optimizer(self, weights, launches):
        """AdamW: weights, gradients and two moments in 32 bits are read, three of them written."""
        for _ in range(launches):
            self.over("multi_tensor_adamw", 7 * _FLOAT * weights / launches, _FLOAT)
