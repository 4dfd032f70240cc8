"""Kernels in a PyTorch profiler's trace (export_chrome_trace), and lull's counts held against them: for
machines where the kernel witness cannot record. Pure but for `demangle`.

The profiler shows demangled names and no dynamic shared memory apart: names and shapes are compared.
"""

import collections
import ctypes
import json


def kernels(text):
    """{(name, grid, block): count} of what ran on the device."""
    found = collections.Counter()
    for event in json.loads(text).get("traceEvents", []):
        if str(event.get("cat", "")).lower() == "kernel":
            about = event.get("args", {})
            found[event.get("name", ""), tuple(about.get("grid", ())), tuple(about.get("block", ()))] += 1
    return found


def demangle(names):
    """{name: as a person writes it}, by the C++ library that PyTorch brings; unchanged where there is none."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        call, free = getattr(library, "__cxa_demangle"), ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return {name: name for name in names}
    call.restype, call.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    free.argtypes = [ctypes.c_void_p]
    found = {}
    for name in names:
        status = ctypes.c_int()
        text = call(name.encode(), None, None, ctypes.byref(status))
        found[name] = ctypes.string_at(text).decode(errors="replace") if status.value == 0 and text else name
        if text:
            free(text)
    return found


def differences(client, lull_kernels, theirs, plain, most=12):
    """`plain`: demangle's answer for lull's names. In graphs only the sum is known to lull."""
    ours, cut = collections.Counter(), set()
    for kernel in lull_kernels:
        if kernel["kind"] == "kernel" and kernel["launches"]:
            ours[plain[kernel["name"]], tuple(kernel["grid"]), tuple(kernel["block"])] += kernel["launches"]
            if len(kernel["name"]) > 500:  # cut where the daemon shows it: no name to compare
                cut.add((tuple(kernel["grid"]), tuple(kernel["block"])))
    in_graphs = client["graph_kernels"]
    lines = []
    if client["dropped"] == 0 and sum(ours.values()) + in_graphs != sum(theirs.values()):
        lines.append(f"lull counted {sum(ours.values())} kernels and {in_graphs} in graphs, the profiler {sum(theirs.values())}")
    if client["dropped"] == 0 and in_graphs == 0:
        for key in sorted(set(ours) | set(theirs), key=str):
            if ours[key] != theirs[key] and key[1:] not in cut:
                lines.append(f"{key[0][:120]} grid {key[1]} block {key[2]}: lull {ours[key]}, profiler {theirs[key]}")
    return lines if len(lines) <= most else lines[:most] + [f"... {len(lines) - most} more"]
