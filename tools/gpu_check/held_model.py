#!/usr/bin/env python3
"""A PyTorch job whose memory is known, led by orders on stdin as lull-device-probe's `hold` is: a JSON line answers each.

    held_model.py BYTES
      check        whether every tensor is what it was
      checkpoint   the driver's checkpoint of this process, there and back: what each call took

Between orders it trains a small model. It knows nothing of lull.
"""

import ctypes
import json
import os
import select
import sys
import time

_PIECE = 256 << 20
_LOCK_WAIT_MS = 10000


def answer(**what):
    print(json.dumps(what), flush=True)


def checkpoint():
    """Names as in lull-device-probe's own answer."""
    driver = ctypes.CDLL("libcuda.so.1")
    words = (ctypes.c_ulonglong * 8)()
    lock = (ctypes.c_ulonglong * 8)(_LOCK_WAIT_MS)
    calls = []
    for call, arguments in (("Lock", lock), ("Checkpoint", words), ("Restore", words), ("Unlock", words)):
        start = time.monotonic()
        result = getattr(driver, "cuCheckpointProcess" + call)(os.getpid(), ctypes.byref(arguments))
        calls.append({"call": call.lower(), "ms": (time.monotonic() - start) * 1e3, "result": result})
        if result != 0:
            return {"calls": calls, "refused": f"{call.lower()} answers {result}"}
    return {"calls": calls}


def main():
    size = int(sys.argv[1])
    import torch
    if not torch.cuda.is_available():
        answer(skipped="PyTorch sees no GPU")
        return 0
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(64, 256, device="cuda")
    pieces = []
    for held in range(0, size, _PIECE):
        count = min(_PIECE, size - held) // 8
        pieces.append(torch.randint(-(1 << 62), 1 << 62, (max(1, count),), dtype=torch.int64, device="cuda"))

    def sums():
        # Sums wrap: two of them, of which one minds the place.
        return [(int(piece.sum()), int((piece[::2] ^ 0x5A5A5A5A).sum())) for piece in pieces]

    before = sums()
    answer(bytes=size)
    while True:
        if not select.select([sys.stdin], [], [], 0)[0]:
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
            torch.cuda.synchronize()
            continue
        order = sys.stdin.readline()
        if not order:
            return 0
        if order.strip() == "check":
            answer(intact=sums() == before)
        elif order.strip() == "checkpoint":
            torch.cuda.synchronize()
            answer(**checkpoint())
        else:
            answer(failed="unknown order: " + order.strip())


if __name__ == "__main__":
    sys.exit(main())
