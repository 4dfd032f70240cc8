"""Programs by family: what is drawn for each, from where to where and by whose word, and how it becomes a workload.
A range whose source is [estimate] is ours. Nothing here looks at a policy. Pure."""

from evaluation import models
from evaluation.draws import ESTIMATE, Curve, OneOf, Span
from evaluation.layers import Convolutional, Kernels, Speed, blocks_of
from evaluation.workload_file import Program

US, MS = 1000, 1_000_000

_CONFIGS = "config.json of the models, huggingface.co; torchvision's table"
_H100, _A100 = "TraceLens 171dd74, tests/traces/h100", "HolisticTraceAnalysis f4d0062, tests/data/trace_diff/control"
_MEASURED = "measured on an H100, docs/hardware"
_VLLM = "vLLM, docs.vllm.ai/en/latest/design/cuda_graphs"

# The host's pauses between two launches, by their median, as recorded.
_SHARES = (0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.995, 0.999, 1)
_INFERENCE_PAUSES = tuple(Curve(name, tuple(zip(_SHARES, values))) for name, values in (
    ("bert", (0.32, 0.45, 0.66, 1, 1.37, 1.92, 3.49, 4.18, 4.18, 4.18, 4.74)),
    ("qwen", (0.44, 0.53, 0.70, 1, 2.39, 4.64, 5.42, 6.52, 8.52, 15.9, 24.1)),
    ("timesformer", (0.08, 0.27, 0.41, 1, 1.51, 2.02, 2.86, 3.68, 3.86, 4.74, 7.30)),
    ("vit", (0.04, 0.58, 0.69, 1, 1.25, 1.44, 1.61, 1.74, 2.08, 2.08, 3.13))))
_TRAINING_PAUSES = tuple(Curve(name, tuple(zip(_SHARES, values))) for name, values in (
    ("a100-forward", (0.04, 0.24, 0.60, 1, 2.08, 3.00, 10.6, 60.8, 146, 1380, 1553)),
    ("a100-backward", (0, 0.07, 0.74, 1, 1.30, 1.63, 2.48, 3.70, 4.70, 85.7, 1737))))

SPEED = {
    "compute_per_mille": Span(150, 800, "15 % of the peak of a program in eager mode, 38 to 43 % of Llama 3 (arXiv 2407.21783), 80 % of one large "
                              "product (CS231n 2025, lecture 11)"),
    "memory_per_mille": Span(600, 900, "copies on the device reach 0.89 of the data sheet, docs/hardware; below that " + ESTIMATE),
    "start_ns": Span(2000, 4000, f"an empty kernel takes 3.8 us, {_MEASURED}; half of bert's kernels take less than 3.6 us"),
    "spread_per_mille": Span(8, 440, "lengths of launches of one kernel in one shape, deviation by mean: 8 per mille (median of timesformer's) to 440 "
                             f"(one in ten of the a100 training's); {_H100}, {_A100}"),
}
_EAGER_PAUSE = Span(5, 60, f"15 (qwen), 45 (vit), 51 (bert) and 57 us (timesformer) in the median, {_H100}; 5 us: {ESTIMATE}")
_TRAINING_PAUSE = Span(2, 30, f"25 and 27 us in the median, 2 to 6 us in one pause of ten, {_A100}")
_CURVE = OneOf(_INFERENCE_PAUSES, f"by the median, {_H100}")
_TRAINING_CURVE = OneOf(_TRAINING_PAUSES, f"by the median, {_A100}")
_HELPERS = OneOf((0, 1, 3, 6), "13 (vit) to 15 (bert) kernels a layer in eager mode, recorded; 9 where they are fused")
_BETWEEN = Span(20, 3000, ESTIMATE)
_STEPS_A_WAIT = OneOf((1, 1, 2, 5, 7, 10), "a loss is logged each step (nanoGPT: every 10; Hugging Face Trainer logging_steps: 500, which no "
                      "request here is long enough for)")
_PROMPTS = "lengths of chat prompts spread over two orders of magnitude (ShareGPT, as in arXiv 2309.06180)"
_PADDED = OneOf((False, True), "Hugging Face's DataCollatorWithPadding pads a batch to its longest input, other trainings cut texts into equal pieces")
_LOADING = Span(20, 5000, ESTIMATE)
_OPTIMIZER = Span(4, 60, "PyTorch's foreach AdamW, by the number of tensors: " + ESTIMATE)
_TRAIN_TOKENS = Span(1024, 16384, "512 to 1,024 tokens (BERT, GPT-2) times a batch of 1 to 32: " + ESTIMATE)
_TRAIN_IMAGES = OneOf((16, 32, 64, 128, 256), "torchvision's references train with 32 and 128 images a GPU; the rest " + ESTIMATE)

FAMILIES = {
    "eager_inference": {
        "model": OneOf((*models.ENCODERS, *models.CONVOLUTIONAL), _CONFIGS),
        "batch": OneOf((1, 2, 4, 8, 16), ESTIMATE),
        "tokens": OneOf((32, 128, 197, 384, 512), "197 patches of an image (arXiv 2010.11929), up to BERT's 512"),
        "pause_us": _EAGER_PAUSE, "pauses": _CURVE, "helpers": _HELPERS,
        "waits_inside": OneOf((0, 0, 1, 3), ESTIMATE), "inputs": OneOf((1, 1, 4), "images are of one size, texts are not: " + ESTIMATE),
        "between_us": _BETWEEN,
    },
    "decode_with_graphs": {
        "model": OneOf(models.LANGUAGE, _CONFIGS),
        "batch": OneOf((1, 2, 4, 8, 16, 32, 64, 128, 256), f"captured sizes, {_VLLM}"),
        "context": Span(256, 8192, "Llama 3 allows 8,192 tokens"),
        "tokens": OneOf((1, 4, 16), ESTIMATE), "graphs": OneOf(("whole", "whole", "piecewise"), _VLLM),
        "sampling_launches": OneOf((2, 5, 12), ESTIMATE), "between_tokens_us": Span(50, 2000, ESTIMATE), "between_us": _BETWEEN,
    },
    "prefill": {
        "model": OneOf(models.LANGUAGE, _CONFIGS),
        "tokens": Span(128, 8192, "Llama 3 allows 8,192 tokens; vLLM schedules up to 8,192 a step"),
        "prompts": OneOf((1, 3, 6), _PROMPTS),
        "pause_us": Span(2, 60, "as eager_inference; 2 us: " + ESTIMATE), "pauses": _CURVE, "helpers": _HELPERS, "between_us": _BETWEEN,
    },
    "training": {
        "model": OneOf(models.TRAINED, _CONFIGS), "tokens": _TRAIN_TOKENS, "padded": _PADDED, "images": _TRAIN_IMAGES, "pause_us": _TRAINING_PAUSE, "pauses": _TRAINING_CURVE,
        "helpers": _HELPERS, "steps": _STEPS_A_WAIT, "optimizer_launches": _OPTIMIZER, "loading_us": _LOADING,
    },
    "training_with_streams": {
        "model": OneOf(models.TRAINED, _CONFIGS), "tokens": _TRAIN_TOKENS, "padded": _PADDED, "images": _TRAIN_IMAGES, "pause_us": _TRAINING_PAUSE, "pauses": _TRAINING_CURVE,
        "helpers": _HELPERS, "steps": _STEPS_A_WAIT, "optimizer_launches": _OPTIMIZER, "loading_us": _LOADING,
        "streams": OneOf((2, 3, 4, 6), "4 in the recorded A100 training; 2 and 6: " + ESTIMATE),
    },
    "gradient_accumulation": {
        "model": OneOf(models.TRAINED, _CONFIGS), "tokens": _TRAIN_TOKENS, "padded": _PADDED, "images": _TRAIN_IMAGES, "pause_us": _TRAINING_PAUSE, "pauses": _TRAINING_CURVE,
        "helpers": _HELPERS, "micro_batches": OneOf((2, 4, 8, 16), "nanoGPT: 40 over 8 GPUs, 5 each; the rest " + ESTIMATE),
        "loss_read": OneOf(("each", "last"), ESTIMATE), "optimizer_launches": _OPTIMIZER, "loading_us": _LOADING,
    },
    "data_parallel": {
        "model": OneOf(models.TRAINED, _CONFIGS), "tokens": _TRAIN_TOKENS, "padded": _PADDED, "images": _TRAIN_IMAGES, "pause_us": _TRAINING_PAUSE, "pauses": _TRAINING_CURVE,
        "helpers": _HELPERS, "steps": _STEPS_A_WAIT, "optimizer_launches": _OPTIMIZER, "loading_us": _LOADING,
        "ranks": OneOf((2, 4, 8, 16, 64), ESTIMATE),
        "bucket_mb": OneOf((25, 25, 100), "PyTorch's DistributedDataParallel: bucket_cap_mb, 25 by default"),
        "bus_gb_per_s": Span(20, 400, "InfiniBand of 400 Gb/s to NVLink of 900 GB/s, both ways (NVIDIA, H100 data sheet)"),
        "late_peer_us": Span(10, 8000, "one collective takes 1.1 to 12.6 ms in the recorded A100 training"),
        "blocks": OneOf((8, 16, 24, 32), "NCCL_MAX_CTAS: up to 32 (NCCL, environment variables)"),
    },
    "diffusion": {
        "model": OneOf(models.DENOISERS, "arXiv 2212.09748, 2310.00426, 2307.01952"),
        "tokens": OneOf((256, 1024, 4096), "DiT at 256 and 512 pixels, PixArt-alpha at 1,024"),
        "steps": OneOf((1, 2, 4, 20, 50), "SDXL-Turbo 1 to 4; diffusers' default of 50; 20: " + ESTIMATE),
        "guided": OneOf((1, 2, 2), "classifier-free guidance doubles the batch (arXiv 2207.12598)"),
        "compiled": OneOf((False, False, True), ESTIMATE),
        "pause_us": _EAGER_PAUSE, "pauses": _CURVE, "helpers": _HELPERS, "between_us": _BETWEEN,
    },
    "pipeline": {
        "stages": OneOf((2, 3, 4, 6), ESTIMATE),
        "model": OneOf((*models.ENCODERS, *models.CONVOLUTIONAL), _CONFIGS), "batch": OneOf((1, 2, 4, 8), ESTIMATE),
        "tokens": OneOf((32, 128, 197, 384), "as eager_inference"), "pause_us": _EAGER_PAUSE, "pauses": _CURVE, "helpers": _HELPERS,
        "frames": OneOf((1, 2, 4), ESTIMATE), "host_us": Span(50, 10000, ESTIMATE), "between_us": _BETWEEN,
    },
    "hpc": {
        "solver": OneOf(("conjugate_gradient", "stencil", "molecular_dynamics", "factorization"), "HPCG, HPL and GROMACS are the usual benchmarks"),
        "side": OneOf((104, 128, 192, 256), "HPCG: vectors of a million numbers or more, hpcg-benchmark.org/faq"),
        "fields": OneOf((1, 3, 8), ESTIMATE),
        "atoms": Span(20248, 1066628, "GROMACS's benchmarks from R-143a to the large virus protein"),
        "ns_per_atom": Span(3, 7, ESTIMATE), "order": Span(4096, 24576, ESTIMATE), "panel": OneOf((512, 768, 1024), "HPL's block size: " + ESTIMATE),
        "steps": OneOf((1, 5, 25), ESTIMATE), "waits": OneOf(("each", "last"), "HPCG waits for each scalar product; others for the last step: " + ESTIMATE),
        "pause_us": Span(1, 10, f"a launch from C++ takes 3.7 us, {_MEASURED}; between two of them " + ESTIMATE), "between_us": _BETWEEN,
    },
    "changing_shapes": {
        "model": OneOf((*models.ENCODERS, *models.LANGUAGE[:3]), _CONFIGS),
        "requests": OneOf((3, 6, 12), ESTIMATE), "tokens": Span(16, 2048, _PROMPTS),
        "batch": OneOf((1, 2, 4, 8), ESTIMATE), "trains": OneOf((False, False, True), ESTIMATE),
        "pause_us": Span(2, 60, "as prefill"), "pauses": _CURVE, "helpers": _HELPERS, "between_us": _BETWEEN,
    },
}
SERVING = ("eager_inference", "decode_with_graphs", "prefill", "diffusion", "pipeline", "changing_shapes")  # requests may arrive


def make(family, name, draws):
    """A program of this family. The same draws make the same program."""
    chosen = {key: draws.draw(parameter, key) for key, parameter in FAMILIES[family].items()}
    rates = {key: draws.draw(parameter, key) for key, parameter in SPEED.items()}
    speed = Speed(rates["compute_per_mille"] / 1000, rates["memory_per_mille"] / 1000, rates["start_ns"])
    said = ", ".join(f"{key} {getattr(value, 'name', value)}" for key, value in (chosen | rates).items())
    curve, pause_ns = chosen.get("pauses"), chosen.get("pause_us", 2) * US
    spread = rates["spread_per_mille"] / 1000 * 3.4641  # of a length that lies anywhere in a range
    program = Program(name, _KINDS.get(family, "inference"), f"{family}: {said}", streams=_streams(family, chosen),
                      pause_after_ns=chosen.get("between_us", 0) * US,
                      pause_ns=lambda n: pause_ns * (curve.at(draws.share("pause", n)) if curve else 1),
                      length=lambda n: 1 + spread * (draws.share("length", n) - 0.5))
    kernels = Kernels(program, speed, chosen.get("helpers", 0))
    _BUILDERS[family](program, kernels, chosen, draws)
    return program


def _streams(family, chosen):
    return 2 if family == "data_parallel" or chosen.get("solver") == "molecular_dynamics" else chosen.get("streams", 1)


def _forward(kernels, model, batch, tokens, waits=0):
    """`tokens` of each of `batch` inputs; the host reads a little back `waits` times on the way."""
    for layer in range(model.layers):
        if isinstance(model, Convolutional):
            kernels.convolution(model, batch, layer)
        else:
            kernels.transformer_layer(model, batch * tokens, tokens)
        if waits and (layer + 1) % max(1, model.layers // (waits + 1)) == 0 and layer + 1 < model.layers:
            kernels.program.read_back(64)


def _backward(kernels, model, batch, tokens, after_layer=lambda layer: None):
    for layer in reversed(range(model.layers)):
        if isinstance(model, Convolutional):
            kernels.convolution(model, batch, layer, backward=True)
        else:
            kernels.transformer_layer_backward(model, batch * tokens, tokens)
        after_layer(layer)


def _eager_inference(program, kernels, chosen, draws):
    for number in range(chosen["inputs"]):
        tokens = chosen["tokens"] if chosen["inputs"] == 1 else draws.draw(FAMILIES["eager_inference"]["tokens"], "tokens", number)
        program.copy("h2d", chosen["batch"] * tokens * 8, pause_ns=draws.draw(_BETWEEN, "between", number) * US)
        _forward(kernels, chosen["model"], chosen["batch"], tokens, chosen["waits_inside"])
        program.read_back(chosen["batch"] * 4000)


def _decode_with_graphs(program, kernels, chosen, draws):
    model, batch, speed = chosen["model"], chosen["batch"], kernels.speed
    for token in range(chosen["tokens"]):
        program.copy("h2d", batch * 8, pause_ns=draws.draw(FAMILIES["decode_with_graphs"]["between_tokens_us"], token) * US)
        cached = batch * (chosen["context"] + token) * model.cache_bytes_per_token
        products = max(speed.traffic(2 * model.weights), 2.0 * model.weights * batch / (989e3 * speed.compute))
        small = 9 * 1200  # of a layer, kernels inside a graph at 1.2 us: [estimate]
        if chosen["graphs"] == "whole":
            program.launch("graph_decode", 132, 256, products + speed.traffic(cached) + model.layers * small)
        else:
            for layer in range(model.layers):
                program.launch("graph_piece", 132, 256, products / model.layers + small)
                program.launch("paged_attention", batch * 8, 128, speed.bytes_ns(cached / model.layers))
        for _ in range(chosen["sampling_launches"]):
            kernels.over("sample", batch * model.vocabulary * 4, 4)
        program.read_back(batch * 8)


def _prefill(program, kernels, chosen, draws):
    for prompt in range(chosen["prompts"]):
        tokens = chosen["tokens"] if chosen["prompts"] == 1 else draws.draw(FAMILIES["prefill"]["tokens"], "tokens", prompt)
        program.copy("h2d", tokens * 8, pause_ns=draws.draw(_BETWEEN, "between", prompt) * US)
        _forward(kernels, chosen["model"], 1, tokens)
        kernels.product("vocabulary", 1, chosen["model"].vocabulary, chosen["model"].width)
        kernels.over("sample", chosen["model"].vocabulary * 4, 4)
        program.read_back(8)


def _batch(chosen, draws, step):
    """Inputs and tokens of each, of one step."""
    if isinstance(chosen["model"], Convolutional):
        return chosen["images"], 1
    longest = round(512 * (0.4 + 0.6 * draws.share("longest", step))) if chosen["padded"] else 512  # of a batch: [estimate]
    return max(1, round(chosen["tokens"] / 512)), longest


def _training(program, kernels, chosen, draws, after_layer=lambda layer: None, before_optimizer=lambda: None):
    """Without streams of its own each step's batch is copied where it is computed."""
    for step in range(chosen["steps"]):
        batch, tokens = _batch(chosen, draws, step)
        program.copy("h2d", batch * (3 * 224 * 224 if isinstance(chosen["model"], Convolutional) else tokens * 8), stream=program.streams - 1,
                     pause_ns=draws.draw(_LOADING, "loading_us", step) * US)
        _follow(program, program.streams - 1, kernels.stream)
        _forward(kernels, chosen["model"], batch, tokens)
        kernels.over("loss", batch * tokens * 4096)
        _backward(kernels, chosen["model"], batch, tokens, after_layer)
        before_optimizer()
        kernels.optimizer(chosen["model"].weights, chosen["optimizer_launches"])
    program.read_back(4)


def _follow(program, first, then):
    """What comes on stream `then` waits for all that is on `first`."""
    if first != then:
        program.record(first, first)
        program.wait(first, then)


def _training_with_streams(program, kernels, chosen, draws):
    """Gradients of every other layer's weights are computed beside the rest, the last stream copies batches."""
    beside = list(range(1, chosen["streams"] - 1))

    def another_stream(layer):
        if not beside:
            return
        stream = beside[layer % len(beside)]
        _follow(program, 0, stream)
        batch, tokens = _batch(chosen, draws, 0)
        width = getattr(chosen["model"], "width", 256)
        Kernels(program, kernels.speed, stream=stream).product("weight_gradient", width, width, batch * tokens)

    def join():
        for stream in beside:
            _follow(program, stream, 0)

    _training(program, kernels, chosen, draws, another_stream, join)


def _gradient_accumulation(program, kernels, chosen, draws):
    for micro in range(chosen["micro_batches"]):
        batch, tokens = _batch(chosen, draws, micro)
        program.copy("h2d", batch * tokens * 8, pause_ns=draws.draw(_LOADING, "loading_us", micro) * US)
        _forward(kernels, chosen["model"], batch, tokens)
        kernels.over("loss", batch * tokens * 4096)
        _backward(kernels, chosen["model"], batch, tokens)
        if chosen["loss_read"] == "each":
            program.read_back(4)
    kernels.optimizer(chosen["model"].weights, chosen["optimizer_launches"])
    program.read_back(4)


def _data_parallel(program, kernels, chosen, draws):
    """Each full bucket of gradients is summed over the ranks on a stream beside the backward pass; how late the last
    peer is differs from one to the next."""
    model, size = chosen["model"], chosen["bucket_mb"] * 1e6
    layers_a_bucket = max(1, round(size / (4 * model.weights / model.layers)))
    late, count = FAMILIES["data_parallel"]["late_peer_us"], 0

    def all_reduce(layer):
        nonlocal count
        if layer % layers_a_bucket:
            return
        _follow(program, 0, 1)
        moved = 2 * (chosen["ranks"] - 1) / chosen["ranks"] * layers_a_bucket * 4 * model.weights / model.layers
        waits_ns = draws.draw(late, "late", count) * US / 4  # most peers are not the last one
        program.launch("ncclDevKernel_AllReduce_Sum_f32_RING", chosen["blocks"], 512, 10 * US + moved / chosen["bus_gb_per_s"] + waits_ns, stream=1)
        count += 1

    _training(program, kernels, chosen, draws, all_reduce, lambda: _follow(program, 1, 0))


def _diffusion(program, kernels, chosen, _):
    model, guided = chosen["model"], chosen["guided"]
    program.copy("h2d", 77 * 768 * 2)
    for _ in range(chosen["steps"]):
        if chosen["compiled"]:
            step = Program("", "", "")
            _forward(Kernels(step, kernels.speed, chosen["helpers"]), model, guided, chosen["tokens"])
            program.launch("graph_denoise", 132, 256, step.kernel_ns)
        else:
            _forward(kernels, model, guided, chosen["tokens"])
        kernels.over("scheduler_step", 4 * 128 * 128 * 8, 4)
    decoder = Convolutional("decoder", 30, 1.2e12, 8e9, 50e6)  # of the latent image: [estimate]
    _forward(kernels, decoder, 1, 1)
    program.read_back(512 * 512 * 3)


def _pipeline(program, kernels, chosen, draws):
    """Stages of one frame after the other; the host works between them, each time for another while."""
    parameters = FAMILIES["pipeline"]
    for frame in range(chosen["frames"]):
        for stage in range(chosen["stages"]):
            program.copy("h2d", 3 * 224 * 224 * chosen["batch"], pause_ns=draws.draw(parameters["host_us"], "host", frame, stage) * US)
            model = draws.draw(parameters["model"], "stage", stage)
            _forward(kernels, model, chosen["batch"], chosen["tokens"])
            program.read_back(chosen["batch"] * 4000)


def _hpc(program, kernels, chosen, _):
    _SOLVERS[chosen["solver"]](program, kernels, chosen)
    if "sync" not in program.ops[-1]:
        program.read_back(8)


def _conjugate_gradient(program, kernels, chosen):
    """As HPCG: four levels of a symmetric Gauss-Seidel smoother in eight colours, products of a matrix of 27 diagonals,
    three scalar products."""
    rows = chosen["side"] ** 3
    row_bytes = 27 * 12

    def scalar_product():
        kernels.over("dot", 16 * rows, 8)
        if chosen["waits"] == "each":
            program.read_back(8)

    for _ in range(chosen["steps"]):
        for level in (0, 1, 2, 3, 2, 1, 0):
            for _ in range(8):
                kernels.over("gauss_seidel", row_bytes * (rows >> 3 * level) / 8, row_bytes / 32)
            kernels.over("restrict_or_prolong", 16 * (rows >> 3 * level), 8)
        scalar_product()
        kernels.over("matrix_vector", row_bytes * rows, row_bytes / 32)
        scalar_product()
        kernels.over("axpy", 24 * rows, 8)
        kernels.over("axpy", 24 * rows, 8)
        scalar_product()


def _stencil(program, kernels, chosen):
    for _ in range(chosen["steps"]):
        for _ in range(chosen["fields"]):
            kernels.over("boundary", 6 * 8 * chosen["side"] ** 2, 8)
            kernels.over("stencil", 16 * chosen["side"] ** 3, 8)
        if chosen["waits"] == "each":
            kernels.over("time_step", 8 * chosen["side"] ** 3, 8)
            program.read_back(8)


def _molecular_dynamics(program, kernels, chosen):
    """Forces between near atoms beside those of the long range, on a stream of their own. Of a step's time these have 60
    and 30 %: [estimate]."""
    atoms, step_ns = chosen["atoms"], chosen["atoms"] * chosen["ns_per_atom"]
    for _ in range(chosen["steps"]):
        _follow(program, 0, 1)
        program.launch("nonbonded_forces", atoms / 64, 64, 0.6 * step_ns)
        for name, share in (("spread", 0.1), ("fft_forward", 0.05), ("solve", 0.03), ("fft_backward", 0.05), ("gather", 0.07)):
            program.launch(name, atoms / 128, 128, share * step_ns, stream=1)
        _follow(program, 1, 0)
        for name in ("reduce_forces", "integrate", "constrain", "constrain", "buffer_operations"):
            program.launch(name, atoms / 256, 256, 0.02 * step_ns)
        if chosen["waits"] == "each":
            program.read_back(64)


def _factorization(program, kernels, chosen):
    """As HPL on one GPU: small kernels for the panel, whose pivots the host reads, then one large product in 64 bits
    (67 TFLOP/s, H100 data sheet) for all that is left."""
    order, panel = chosen["order"], chosen["panel"]
    for left in range(order, panel, -panel * max(1, order // panel // 12)):
        for _ in range(8):
            kernels.over("panel", 8 * left * panel / 4, 8)
        program.read_back(panel * 4)
        kernels.over("swap_rows", 16 * left * panel, 8)
        program.launch("triangular_solve", blocks_of(left, panel), 256, kernels.speed.start_ns + 1.0 * left * panel * panel / (67e3 * kernels.speed.compute))
        program.launch("update", blocks_of(left, left), 256, kernels.speed.start_ns + 2.0 * left * left * panel / (67e3 * kernels.speed.compute))


def _changing_shapes(program, kernels, chosen, draws):
    for request in range(chosen["requests"]):
        tokens = draws.draw(FAMILIES["changing_shapes"]["tokens"], "tokens", request)
        program.copy("h2d", chosen["batch"] * tokens * 8, pause_ns=draws.draw(_BETWEEN, "between", request) * US)
        _forward(kernels, chosen["model"], chosen["batch"], tokens)
        if chosen["trains"]:
            _backward(kernels, chosen["model"], chosen["batch"], tokens)
            kernels.optimizer(chosen["model"].weights, 12)
        else:
            program.read_back(chosen["batch"] * 4000)
    if chosen["trains"]:
        program.read_back(4)


_KINDS = {"training": "training", "training_with_streams": "training", "gradient_accumulation": "training", "data_parallel": "training",
          "hpc": "batch"}
_SOLVERS = {"conjugate_gradient": _conjugate_gradient, "stencil": _stencil, "molecular_dynamics": _molecular_dynamics,
            "factorization": _factorization}
_BUILDERS = {"eager_inference": _eager_inference, "decode_with_graphs": _decode_with_graphs, "prefill": _prefill, "training": _training,
             "training_with_streams": _training_with_streams, "gradient_accumulation": _gradient_accumulation, "data_parallel": _data_parallel,
             "diffusion": _diffusion, "pipeline": _pipeline, "hpc": _hpc, "changing_shapes": _changing_shapes}
