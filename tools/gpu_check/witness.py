"""What the kernel witness wrote (native/kernel_witness.c): reading it, and holding lull's counts
against it. Pure but for `read`."""

import collections
import pathlib

# Longer names are cut by the daemon where it shows them.
NAME_SHOWN = 500
# A copy or memset of no more bytes is no unit of lull's (shim/hooks/copy.cc): it runs beside the kernels and ends no gap.
SMALL_BYTES = 64 * 1024

Kernel = collections.namedtuple("Kernel", "start_ns end_ns device context stream correlation graph_node grid block shared name")
Transfer = collections.namedtuple("Transfer", "kind start_ns end_ns device context stream correlation bytes")


class Witness:
    """kernels and transfers in order of their start; problems: lines of the witness; complete: it saw the end."""

    def __init__(self):
        self.version, self.kernels, self.transfers, self.problems = None, [], [], []
        self.complete, self.dropped = False, 0

    def usable(self):
        return self.version is not None and not any("fail" in p or "no kernels" in p for p in self.problems)


def parse(text):
    seen = Witness()
    for line in text.splitlines():
        fields = line.split("\t")
        try:
            if fields[0] == "k":
                numbers = [int(v) for v in fields[1:15]]
                seen.kernels.append(Kernel(*numbers[:7], tuple(numbers[7:10]), tuple(numbers[10:13]), numbers[13],
                                           "\t".join(fields[15:])))
            elif fields[0] == "c":
                n = [int(v) for v in fields[1:9]]
                seen.transfers.append(Transfer("copy", *n[:6], n[7]))
            elif fields[0] == "s":
                n = [int(v) for v in fields[1:8]]
                seen.transfers.append(Transfer("memset", *n[:6], n[6]))
            elif fields[0] == "cupti":
                seen.version = int(fields[1])
            elif fields[0] == "problem":
                seen.problems.append(fields[1])
            elif fields[0] == "end":
                seen.complete, seen.dropped = True, int(fields[1])
        except (ValueError, IndexError, TypeError):
            seen.problems.append(f"a line that cannot be read: {line[:60]}")
    seen.kernels.sort(key=lambda k: (k.start_ns, k.end_ns))
    seen.transfers.sort(key=lambda t: (t.start_ns, t.end_ns))
    return seen


def read(prefix, pid):
    path = pathlib.Path(f"{prefix}.{pid}")
    return parse(path.read_text(errors="replace")) if path.exists() else None


def _key(name, grid, block, shared):
    return name[:NAME_SHOWN], tuple(grid), tuple(block), shared


def witness_counts(seen):
    """{(name, grid, block, dynamic shared bytes): launches} of kernels launched one by one; and how many ran in graphs."""
    counts = collections.Counter(_key(k.name, k.grid, k.block, k.shared) for k in seen.kernels if k.graph_node == 0)
    return counts, sum(k.graph_node != 0 for k in seen.kernels)


def lull_counts(kernels):
    """The same of the daemon's `kernels` answer."""
    counts = collections.Counter()
    for kernel in kernels:
        if kernel["kind"] == "kernel" and kernel["launches"]:
            counts[_key(kernel["name"], kernel["grid"], kernel["block"], kernel["shared_bytes"])] += kernel["launches"]
    return counts


def differences(client, kernels, seen, most=12):
    """Lines that say where lull and the driver disagree; empty when every kernel was seen."""
    theirs, theirs_in_graphs = witness_counts(seen)
    ours = lull_counts(kernels)
    graphs = sum(k["launches"] for k in kernels if k["kind"] == "graph")
    lines = []
    launched = client["launches"] - graphs
    if client["dropped"] == 0 and launched != sum(theirs.values()):
        lines.append(f"lull counted {launched} kernels launched one by one, the driver ran {sum(theirs.values())}")
    elif client["dropped"] and abs(launched - sum(theirs.values())) > client["dropped"]:
        lines.append(f"lull counted about {launched} kernels, the driver ran {sum(theirs.values())}")
    if client["graph_kernels"] != theirs_in_graphs:
        lines.append(f"lull counted {client['graph_kernels']} kernels in graphs, the driver ran {theirs_in_graphs}")
    if seen.dropped:
        lines.append(f"CUPTI itself lost {seen.dropped} records")
    if client["dropped"] == 0:
        for key in sorted(set(theirs) | set(ours), key=str):
            if theirs[key] != ours[key]:
                name, grid, block, shared = key
                lines.append(f"{name[:120]} grid {grid} block {block} shared {shared}: lull {ours[key]}, driver {theirs[key]}")
    return lines if len(lines) <= most else lines[:most] + [f"... {len(lines) - most} more"]


def durations_by_kernel(seen):
    """{key: [ns, ..]} of kernels outside graphs."""
    found = collections.defaultdict(list)
    for k in seen.kernels:
        if k.graph_node == 0:
            found[_key(k.name, k.grid, k.block, k.shared)].append(k.end_ns - k.start_ns)
    return found


def gaps_by_kernel(seen):
    """{key: [ns, ..]} as lull means it: from the end of a kernel outside graphs to the start of the next unit of its
    stream, a kernel, a graph's first kernel or a large copy; >= 0."""
    units = [(k.start_ns, k.end_ns, (k.context, k.stream), k) for k in seen.kernels]
    units += [(t.start_ns, t.end_ns, (t.context, t.stream), None) for t in seen.transfers if t.bytes > SMALL_BYTES]
    units.sort(key=lambda u: (u[2], u[0], u[1]))
    found = collections.defaultdict(list)
    for this, following in zip(units, units[1:]):
        if this[3] is not None and this[3].graph_node == 0 and this[2] == following[2]:
            k = this[3]
            found[_key(k.name, k.grid, k.block, k.shared)].append(max(0, following[0] - this[1]))
    return found
