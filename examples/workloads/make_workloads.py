#!/usr/bin/env python3
"""Writes the four shipped workloads next to this script. They are invented: plausible shapes of
common programs, not recordings. Run it after changing it; the output is committed."""
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
US, MS = 1_000, 1_000_000


class Maker:
    def __init__(self, name, kind, description, streams=1, call_ns=4 * US, pause_after_ns=0):
        self.head = {"lull_workload": 1, "name": name, "kind": kind, "description": description,
                     "streams": streams, "call_ns": call_ns, "pause_after_ns": pause_after_ns}
        self.kernels = []

    def kernel(self, name, grid, block, duration_ns, shared_bytes=0):
        entry = {"name": name, "grid": grid, "block": block}
        if shared_bytes:
            entry["shared_bytes"] = shared_bytes
        entry["duration_ns"] = duration_ns
        self.kernels.append(entry)
        return len(self.kernels) - 1

    def write(self, ops):
        lines = [f"{json.dumps(key)}: {json.dumps(value)}," for key, value in self.head.items()]
        lines.append('"kernels": [')
        lines.append(",\n".join("  " + json.dumps(entry) for entry in self.kernels))
        lines.append("],\n\"ops\": [")
        lines.append(",\n".join(self.lines(ops, "  ")))
        lines.append("]")
        path = os.path.join(HERE, self.head["name"] + ".json")
        with open(path, "w") as out:
            out.write("{\n" + "\n".join(lines) + "\n}\n")

    def lines(self, ops, indent):
        for op in ops:
            if "repeat" in op:
                inner = ",\n".join(self.lines(op["ops"], indent + "  "))
                yield f'{indent}{{"repeat": {op["repeat"]}, "ops": [\n{inner}\n{indent}]}}'
            else:
                yield indent + json.dumps(op)


def launch(kernel, pause_us=0.0, stream=0, **more):
    op = {"launch": kernel}
    if stream:
        op["stream"] = stream
    if pause_us:
        op["pause_ns"] = round(pause_us * US)
    return op | more


def read_back(bytes_, pause_us, stream=0):
    copy = {"copy": "d2h", "bytes": bytes_, "pause_ns": round(pause_us * US)}
    sync = {"sync": "stream", "pause_ns": 2 * US}
    if stream:
        copy["stream"] = sync["stream"] = stream
    return [copy, sync]


def chatty_inference():
    m = Maker("chatty_inference", "inference",
              "a small model driven from Python: short kernels, the host is the bottleneck, "
              "results are read back after each stage", call_ns=5 * US, pause_after_ns=200 * US)
    embed = m.kernel("void embed_tokens<__half>(const int*, const __half*, __half*, int)",
                     [96], [128], 4 * US)
    norm = m.kernel("void layer_norm_kernel<float, __half>(int, float, const __half*, __half*)",
                    [128], [256], 3500, 1024)
    gemm = m.kernel("gemm_f16_64x64_tn", [12, 4], [128], 7800, 24576)
    bias = m.kernel("void elementwise_kernel<4, AddBias>(int, AddBias)", [96], [128], 2600)
    attend = m.kernel("void attention_small<64>(const __half*, __half*, int, float)",
                      [12, 2], [128], 8900, 16384)
    gelu = m.kernel("void elementwise_kernel<4, Gelu>(int, Gelu)", [192], [128], 2900)
    pick = m.kernel("void reduce_argmax<float>(const float*, int*, int)", [1], [512], 5200, 4096)
    layer = [launch(norm, 46), launch(gemm, 58), launch(bias, 31), launch(attend, 74),
             launch(gemm, 52, duration_ns=6400), launch(norm, 44), launch(gemm, 61, duration_ns=8600),
             launch(gelu, 33), launch(gemm, 49)]
    stage = ([{"repeat": 2, "ops": layer}] + [launch(pick, 55)] + read_back(4, 12))
    m.write([{"copy": "h2d", "bytes": 2048, "pause_ns": 15 * US}, launch(embed, 40),
             {"repeat": 3, "ops": stage},
             launch(gemm, 66), launch(pick, 38)] + read_back(512, 20))


def dense_inference():
    m = Maker("dense_inference", "inference",
              "a larger model with a fast host: a long chain of kernels, launched far ahead of the "
              "device", call_ns=3 * US, pause_after_ns=400 * US)
    norm = m.kernel("void rms_norm<__nv_bfloat16, 8>(const __nv_bfloat16*, __nv_bfloat16*, int)",
                    [512], [256], 21 * US, 512)
    project = m.kernel("gemm_bf16_128x128_tn_stages4", [24, 16], [256], 44 * US, 98304)
    rotate = m.kernel("void rotary_embedding<__nv_bfloat16>(__nv_bfloat16*, const float*, int)",
                      [1024], [128], 20 * US)
    attend = m.kernel("flash_attention_fwd<128, 64, true>(AttentionParams)", [16, 32], [128],
                      49 * US, 73728)
    add = m.kernel("void elementwise_kernel<8, Add>(int, Add)", [2048], [128], 20500)
    gate = m.kernel("void silu_and_mul<__nv_bfloat16>(const __nv_bfloat16*, __nv_bfloat16*, int)",
                    [4096], [256], 27 * US)
    head = m.kernel("gemm_bf16_256x128_tn_stages3", [128, 4], [256], 96 * US, 147456)
    sample = m.kernel("void sample_top_k<float, 64>(const float*, int*, unsigned long)", [8], [1024],
                      24 * US, 32768)
    layer = [launch(norm, 3), launch(project, 2), launch(rotate, 2), launch(attend, 3),
             launch(project, 2, duration_ns=33 * US), launch(add, 1.5), launch(norm, 1.5),
             launch(project, 2, duration_ns=48 * US), launch(gate, 2),
             launch(project, 2, duration_ns=46 * US), launch(add, 1.5)]
    m.write([{"copy": "h2d", "bytes": 16384, "pause_ns": 8 * US},
             {"repeat": 22, "ops": layer},
             launch(norm, 3), launch(head, 3), launch(sample, 4)] + read_back(64, 5))


def training_step():
    m = Maker("training_step", "training",
              "forward, backward and optimizer of a mid-sized model; batches are copied and "
              "gradients reduced on a second stream", streams=2, call_ns=4 * US,
              pause_after_ns=150 * US)
    conv = m.kernel("void conv_fprop_nhwc<128, 128, 32>(ConvParams)", [98, 4], [256], 142 * US, 65536)
    norm = m.kernel("void batch_norm_train<float, __half>(const __half*, __half*, float*, int)",
                    [256], [512], 58 * US, 8192)
    relu = m.kernel("void elementwise_kernel<4, Relu>(int, Relu)", [3136], [128], 31 * US)
    loss = m.kernel("void cross_entropy_forward<float>(const float*, const long*, float*, int)",
                    [64], [256], 12 * US, 2048)
    dgrad = m.kernel("void conv_dgrad_nhwc<128, 128, 32>(ConvParams)", [98, 4], [256], 156 * US, 65536)
    wgrad = m.kernel("void conv_wgrad_nhwc<64, 128, 64>(ConvParams)", [36, 8], [256], 171 * US, 81920)
    norm_back = m.kernel("void batch_norm_backward<float, __half>(const __half*, __half*, float*, int)",
                         [256], [512], 74 * US, 8192)
    reduce = m.kernel("void all_reduce_ring<float, 8>(RingParams)", [8], [512], 180 * US)
    update = m.kernel("void multi_tensor_adam<4, float>(TensorListMetadata, float, float, float)",
                      [320], [512], 88 * US)
    forward = [launch(conv, 22), launch(norm, 14), launch(relu, 9)]
    backward = [launch(relu, 12, duration_ns=36 * US), launch(norm_back, 17), launch(dgrad, 21),
                launch(wgrad, 19)]
    bucket = [{"record": 1}, {"wait": 1, "stream": 1},
              launch(reduce, 6, stream=1), ]
    m.write([{"copy": "h2d", "bytes": 19267584, "stream": 1, "pause_ns": 30 * US},
             {"record": 0, "stream": 1}, {"wait": 0, "stream": 0},
             {"memset": 4 << 20, "pause_ns": 10 * US},
             {"repeat": 16, "ops": forward},
             launch(loss, 40),
             {"repeat": 4, "ops": [{"repeat": 4, "ops": backward}] + bucket},
             {"record": 2, "stream": 1}, {"wait": 2, "stream": 0},
             {"repeat": 6, "ops": [launch(update, 15)]}] + read_back(4, 25))


def batch_long_kernels():
    m = Maker("batch_long_kernels", "batch",
              "an offline job of few, long kernels: nothing that fits into a short pause",
              call_ns=6 * US, pause_after_ns=500 * US)
    gather = m.kernel("void gather_blocks<double>(const double*, const int*, double*, long)",
                      [8192], [256], 2100 * US)
    stencil = m.kernel("void stencil_27pt<double, 16>(const double*, double*, int, int, int)",
                       [64, 64, 8], [256], 3400 * US, 40960)
    solve = m.kernel("void block_solve<double, 32>(const double*, double*, int)",
                     [16384], [128], 5900 * US, 49152)
    norm = m.kernel("void residual_norm<double>(const double*, double*, long)", [1320], [512],
                    2600 * US, 4096)
    step = [launch(gather, 20), launch(stencil, 15), launch(solve, 15), launch(stencil, 15),
            launch(norm, 25)]
    m.write([{"copy": "h2d", "bytes": 8 << 20, "pause_ns": 60 * US},
             {"repeat": 2, "ops": step}] + read_back(8, 30) +
            [launch(gather, 80, duration_ns=4300 * US)] + read_back(4 << 20, 15))


for make in (chatty_inference, dense_inference, training_step, batch_long_kernels):
    make()
