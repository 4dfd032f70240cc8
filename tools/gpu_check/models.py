#!/usr/bin/env python3
"""A PyTorch model with random weights, run again and again: a program like any other, which knows
nothing of lull. Runs in a process of its own, where PyTorch is. The report it writes is lull-play's.

    models.py MODEL [--mode infer|train] [--batch B] [--feature eager|graph|compile|streams|workers]
              [--iterations N | --until-signal] [--warmup K] [--report FILE] [--start-file FILE] [--pause-file FILE]
              [--profile FILE: PyTorch's own profiler, from before the model is made to the end, as a trace]
    models.py --list

An iteration (of the decoder: a token) ends when its result is on the host. While --pause-file exists, it waits between two
iterations. Behind its last line it stays until $PROGRAM_WAIT_FILE exists, where that is set.
"""

import argparse
import ctypes
import json
import os
import signal
import sys
import time

_PAUSE_S = 0.002
_stop = False

# name: (kind, height and width of an image, length of a sequence, or of a decoder's cache)
MODELS = {
    "alexnet": ("classify", 224), "vgg16": ("classify", 224), "resnet18": ("classify", 224), "resnet50": ("classify", 224),
    "resnet101": ("classify", 224), "googlenet": ("classify", 224), "vit_b_16": ("classify", 224),
    "fcn_resnet50": ("segment", 320), "fcn_resnet101": ("segment", 320),
    "deeplabv3_resnet50": ("segment", 320), "deeplabv3_resnet101": ("segment", 320),
    "fasterrcnn_resnet50_fpn": ("detect", 400), "maskrcnn_resnet50_fpn": ("detect", 400),
    "keypointrcnn_resnet50_fpn": ("detect", 400),
    "bert": ("sequence", 128), "mlp": ("vector", 1024), "decoder": ("decode", 1024),
}


def _on_signal(*_):
    global _stop
    _stop = True


class Report:
    """JSON lines, each written at once, so that a reader who follows the file sees it."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644) if path else None

    def write(self, **event):
        if self._fd is not None:
            os.write(self._fd, (json.dumps(event) + "\n").encode())


def make_model(torch, name):
    """(module, function from a batch size to its inputs on the host)."""
    kind, size = MODELS[name]
    if name == "mlp":
        layers = []
        for _ in range(4):
            layers += [torch.nn.Linear(size, size), torch.nn.GELU()]
        return torch.nn.Sequential(*layers), lambda batch: torch.randn(batch, size)
    if name == "bert":
        # BERT base: 12 layers, width 768, 12 heads, 128 tokens. Without any library but PyTorch.
        layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True)
        encoder = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        model = torch.nn.Sequential(torch.nn.Embedding(30522, 768), encoder, torch.nn.Linear(768, 2))
        return model, lambda batch: torch.randint(0, 30522, (batch, size))
    import torchvision
    if kind == "classify":
        more = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
        model = getattr(torchvision.models, name)(weights=None, **more)
    elif kind == "segment":
        model = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None)
    else:
        model = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None)
    return model, lambda batch: torch.rand(batch, 3, size, size)


def result_of(output):
    """A tensor of a model's output, whatever form that has; None when it is empty."""
    while isinstance(output, (list, tuple)):
        if not output:
            return None
        output = output[0]
    if isinstance(output, dict):
        output = next(iter(output.values()))
    return output


class Inference:
    def __init__(self, torch, name, batch):
        self.torch = torch
        self.kind = MODELS[name][0]
        model, self.make_inputs = make_model(torch, name)
        self.model = model.eval().cuda()
        self.batch = batch
        self.host = self.make_inputs(batch).pin_memory()

    def forward(self, inputs):
        return self.model(list(inputs) if self.kind == "detect" else inputs)

    def __call__(self):
        with self.torch.inference_mode():
            result = result_of(self.forward(self.host.cuda(non_blocking=True)))
            if result is not None and result.numel():
                result.flatten()[:16].float().cpu()
        self.torch.cuda.synchronize()


class Compiled(Inference):
    def __init__(self, torch, name, batch):
        super().__init__(torch, name, batch)
        self.model = torch.compile(self.model)


class Graph(Inference):
    """Captured once, replayed: the way of torch.cuda.graph's documentation."""

    def __init__(self, torch, name, batch):
        super().__init__(torch, name, batch)
        self.inputs = self.host.cuda()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            for _ in range(3):
                self.forward(self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self.graph):
            self.output = self.forward(self.inputs)

    def __call__(self):
        self.inputs.copy_(self.host, non_blocking=True)
        self.graph.replay()
        result_of(self.output).flatten()[:16].float().cpu()
        self.torch.cuda.synchronize()


class Streams(Inference):
    """Two halves of a batch on two streams."""

    def __init__(self, torch, name, batch):
        super().__init__(torch, name, batch)
        self.streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def __call__(self):
        outputs = []
        with self.torch.inference_mode():
            for stream, half in zip(self.streams, self.host.chunk(2)):
                with self.torch.cuda.stream(stream):
                    outputs.append(result_of(self.forward(half.cuda(non_blocking=True))))
            for stream in self.streams:
                self.torch.cuda.current_stream().wait_stream(stream)
            self.torch.stack([o.float().mean() for o in outputs]).cpu()
        self.torch.cuda.synchronize()


class Decode:
    """Token after token of a decoder of GPT-2's size (12 layers, width 768, half precision) with a cache of keys and values:
    each token is one replay of a CUDA graph, and is read back, as a serving loop does that looks for the end."""

    LAYERS, WIDTH, HEADS, VOCABULARY = 12, 768, 12, 50257

    def __init__(self, torch, name, batch):
        self.torch, self.batch, self.length = torch, batch, MODELS[name][1]
        width, head = self.WIDTH, self.WIDTH // self.HEADS

        def weight(*shape):
            return (torch.randn(*shape) * 0.02).half().cuda()

        self.tokens, self.places = weight(self.VOCABULARY, width), weight(self.length, width)
        self.layers = [{"qkv": weight(3 * width, width), "out": weight(width, width), "up": weight(4 * width, width), "down": weight(width, 4 * width),
                        "keys": torch.zeros(batch, self.HEADS, self.length, head).half().cuda(),
                        "values": torch.zeros(batch, self.HEADS, self.length, head).half().cuda()} for _ in range(self.LAYERS)]
        self.all_places = torch.arange(self.length).cuda()
        self.token = torch.zeros(batch, dtype=torch.long).cuda()
        self.place = torch.zeros(1, dtype=torch.long).cuda()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self.graph):
            self.step()

    def step(self):
        function = self.torch.nn.functional
        shape = (self.batch, self.HEADS, 1, self.WIDTH // self.HEADS)
        seen = (self.all_places <= self.place).view(1, 1, 1, self.length)
        x = self.tokens[self.token] + self.places[self.place]
        for layer in self.layers:
            query, key, value = function.linear(function.layer_norm(x, (self.WIDTH,)), layer["qkv"]).chunk(3, dim=-1)
            layer["keys"].index_copy_(2, self.place, key.reshape(shape))
            layer["values"].index_copy_(2, self.place, value.reshape(shape))
            attended = function.scaled_dot_product_attention(query.reshape(shape), layer["keys"], layer["values"], attn_mask=seen)
            x = x + function.linear(attended.reshape(self.batch, self.WIDTH), layer["out"])
            x = x + function.linear(function.gelu(function.linear(function.layer_norm(x, (self.WIDTH,)), layer["up"])), layer["down"])
        self.token.copy_(function.linear(function.layer_norm(x, (self.WIDTH,)), self.tokens).argmax(-1))
        self.place.add_(1).remainder_(self.length)

    def __call__(self):
        self.graph.replay()
        self.token.cpu()
        self.torch.cuda.synchronize()


class Training:
    def __init__(self, torch, name, batch, workers=0):
        self.torch = torch
        if MODELS[name][0] in ("segment", "detect"):
            raise SystemExit(f"models.py: {name} is not trained here: use a classifier, bert or mlp")
        model, make_inputs = make_model(torch, name)
        self.model = model.train().cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.loss = torch.nn.CrossEntropyLoss()
        self.classes = 2 if name == "bert" else 10
        self.batch = batch
        if workers:
            samples = make_inputs(4 * batch)
            dataset = torch.utils.data.TensorDataset(samples, torch.randint(0, self.classes, (4 * batch,)))
            self.loader = torch.utils.data.DataLoader(dataset, batch_size=batch, num_workers=workers, pin_memory=True)
            self.batches = iter(self.loader)
        else:
            self.loader = None
            self.pair = (make_inputs(batch).pin_memory(), torch.randint(0, self.classes, (batch,)).pin_memory())

    def next_batch(self):
        if self.loader is None:
            return self.pair
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)

    def __call__(self):
        inputs, labels = (one.cuda(non_blocking=True) for one in self.next_batch())
        self.optimizer.zero_grad(set_to_none=True)
        output = self.model(inputs)
        if output.dim() == 3:
            output = output[:, 0]
        self.loss(output, labels).backward()
        self.optimizer.step()
        self.torch.cuda.synchronize()


def make_work(torch, arguments):
    if MODELS[arguments.model][0] == "decode":
        if arguments.mode == "train" or arguments.feature != "graph":
            raise SystemExit(f"models.py: {arguments.model} decodes by a CUDA graph: use --mode infer --feature graph")
        return Decode(torch, arguments.model, arguments.batch)
    if arguments.mode == "train":
        return Training(torch, arguments.model, arguments.batch, 2 if arguments.feature == "workers" else 0)
    kinds = {"eager": Inference, "graph": Graph, "compile": Compiled, "streams": Streams}
    if arguments.feature not in kinds:
        raise SystemExit(f"models.py: --feature {arguments.feature} goes with --mode train")
    return kinds[arguments.feature](torch, arguments.model, arguments.batch)


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", choices=sorted(MODELS))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--mode", choices=("infer", "train"), default="infer")
    parser.add_argument("--feature", choices=("eager", "graph", "compile", "streams", "workers"), default="eager")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--until-signal", action="store_true")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--report")
    parser.add_argument("--start-file")
    parser.add_argument("--pause-file")
    parser.add_argument("--profile")
    arguments = parser.parse_args(words)
    if not arguments.list and (arguments.model is None or arguments.batch < 1 or arguments.iterations < 1):
        parser.error("a model is needed, and --batch and --iterations of 1 or more")
    return arguments


def wait_while(condition):
    while condition() and not _stop:
        time.sleep(_PAUSE_S)


def flush_witness():
    """CUPTI's records are asked for here: an exit may skip the handlers."""
    if path := os.environ.get("CUDA_INJECTION64_PATH"):
        try:
            ctypes.CDLL(path).lull_witness_flush()
        except (OSError, AttributeError):
            pass


def play(work, arguments, report, name):
    report.write(event="ready", model_ns=time.monotonic_ns(), slow_motion=1.0, simulated=False, device=name,
                 workload=arguments.model)
    if arguments.start_file:
        wait_while(lambda: not os.path.exists(arguments.start_file))
    done = 0
    begun = time.monotonic_ns()
    while not _stop and (arguments.until_signal or done < arguments.iterations):
        if arguments.pause_file:
            wait_while(lambda: os.path.exists(arguments.pause_file))
        start = time.monotonic_ns()
        work()
        report.write(event="iteration", i=done, start_ns=start, end_ns=time.monotonic_ns())
        done += 1
    report.write(event="done", iterations=done, start_ns=begun, end_ns=time.monotonic_ns())
    return done


def run(torch, arguments, report):
    work = make_work(torch, arguments)
    for _ in range(arguments.warmup):
        work()
    torch.cuda.synchronize()
    play(work, arguments, report, torch.cuda.get_device_name())


def main(words):
    arguments = parse(words)
    if arguments.list:
        print("\n".join(MODELS))
        return 0
    import torch
    if not torch.cuda.is_available():
        print("models.py: PyTorch sees no GPU", file=sys.stderr)
        return 1
    torch.manual_seed(1)
    signal.signal(signal.SIGTERM, _on_signal)
    signal.signal(signal.SIGINT, _on_signal)
    report = Report(arguments.report)
    torch.cuda.init()
    if arguments.profile:
        # Everything between is the profiler's: lull counts from the start too.
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            run(torch, arguments, report)
        profiler.export_chrome_trace(arguments.profile)
    else:
        run(torch, arguments, report)
    flush_witness()
    print("launches=?", flush=True)
    if wait_file := os.environ.get("PROGRAM_WAIT_FILE"):
        wait_while(lambda: not os.path.exists(wait_file))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
