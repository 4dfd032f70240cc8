#!/usr/bin/env python3
"""Writes the parts of the simulated driver that are a list: run by CMake at build time.

  generate.py --exports driver_exports.txt --not-supported not_supported.txt
              --include <CUDA include folder> --out FOLDER SOURCE...

What comes out (generated_twins.cc, generated_tables.cc):
 1. the cuGetProcAddress table: (name, version, per-thread) -> exported symbol. The k-th
    PFN_<name>_v<version> typedef of the toolkit's headers, by version, is the k-th exported
    generation of that name (plain, _v2, _v3, ...), for plain and _ptds/_ptsz names apart;
 2. a _ptds/_ptsz twin of each implemented call: the same call with stream 0 read as the
    per-thread stream;
 3. a definition that answers CUDA_ERROR_NOT_SUPPORTED for each export in the not-supported list;
 4. the names and texts of the error codes.

An export that is neither implemented nor in the list, or is in both, fails the build.
"""
import argparse
import fnmatch
import os
import re
import sys

# Where the plain words of an error's name would not say what the driver says.
ERROR_TEXTS = {
    "CUDA_SUCCESS": "no error",
    "CUDA_ERROR_INVALID_VALUE": "invalid argument",
    "CUDA_ERROR_NOT_INITIALIZED": "initialization error",
    "CUDA_ERROR_DEINITIALIZED": "driver shutting down",
    "CUDA_ERROR_NO_DEVICE": "no CUDA-capable device is detected",
    "CUDA_ERROR_INVALID_DEVICE": "invalid device ordinal",
    "CUDA_ERROR_INVALID_IMAGE": "device kernel image is invalid",
    "CUDA_ERROR_INVALID_CONTEXT": "invalid device context",
    "CUDA_ERROR_INVALID_PTX": "a PTX JIT compilation failed",
    "CUDA_ERROR_INVALID_HANDLE": "invalid resource handle",
    "CUDA_ERROR_NOT_FOUND": "named symbol not found",
    "CUDA_ERROR_NOT_READY": "device not ready",
    "CUDA_ERROR_NOT_SUPPORTED": "operation not supported",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": "context is destroyed",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "operation not permitted when stream is capturing",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED":
        "operation failed due to a previous error during capture",
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT":
        "operation would make the legacy stream depend on a capturing blocking stream",
}
TWIN = re.compile(r"_pt[ds][sz]$")


def fail(text):
    sys.exit("lull: generate.py: " + text)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def generation(symbol):
    match = re.search(r"_v(\d+)$", TWIN.sub("", symbol))
    return int(match.group(1)) if match else 1


def base_name(symbol):
    return re.sub(r"_v\d+$", "", TWIN.sub("", symbol))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--exports", required=True)
    parser.add_argument("--not-supported", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("sources", nargs="+")
    options = parser.parse_args()

    exports = read(options.exports).split()
    exported = set(exports)
    implemented = set()
    for source in options.sources:
        implemented |= set(re.findall(r"^SIM_API\s+(cu\w+)\s*\(", read(source), re.M))
    unknown = implemented - exported
    if unknown:
        fail("implemented but not exported by the driver: " + " ".join(sorted(unknown)))

    refused = []  # (glob, reason)
    for number, line in enumerate(read(options.not_supported).splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        globs, colon, reason = line.partition(":")
        if not colon or not reason.strip():
            fail("%s:%d: no reason given: write 'name or glob : reason'"
                 % (options.not_supported, number))
        refused += [(glob, reason.strip()) for glob in globs.split()]

    # The typedefs: base name -> plain / per-thread -> [(version, parameters)].
    header = read(os.path.join(options.include, "cudaTypedefs.h"))
    header += read(os.path.join(options.include, "cudaProfilerTypedefs.h"))
    typedefs = {}
    for name, version, twin, parameters in re.findall(
            r"typedef CUresult ?\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(_pt[ds][sz])?\)\(([^;]*)\);", header):
        typedefs.setdefault((name, bool(twin)), []).append((int(version), parameters))
    symbols = {}
    for symbol in exports:
        symbols.setdefault((base_name(symbol), bool(TWIN.search(symbol))), []).append(symbol)
    rows, prototype = [], {}
    for key, generations in sorted(symbols.items()):
        generations.sort(key=generation)
        found = sorted(typedefs.get(key, []), key=lambda row: row[0])
        if len(found) != len(generations):
            fail("%s%s: %d exported generations but %d typedefs in this toolkit: a CUDA 13.0 "
                 "toolkit is needed" % (key[0], " (per thread)" if key[1] else "",
                                        len(generations), len(found)))
        for symbol, (version, parameters) in zip(generations, found):
            rows.append((key[0], version, key[1], symbol))
            prototype[symbol] = parameters

    stubs, twins, wrong = [], [], []
    used = set()
    for symbol in exports:
        globs = [glob for glob, _ in refused if fnmatch.fnmatchcase(symbol, glob)]
        used |= set(globs)
        base = TWIN.sub("", symbol)
        twin_of_implemented = symbol != base and symbol not in implemented and base in implemented
        if (symbol in implemented or twin_of_implemented) and globs:
            wrong.append("%s is implemented and in the not-supported list (%s)" % (symbol, globs[0]))
        elif twin_of_implemented:
            twins.append(symbol)
        elif symbol not in implemented:
            if not globs:
                wrong.append("%s is neither implemented nor in the not-supported list" % symbol)
            stubs.append(symbol)
    for glob, _ in refused:
        if glob not in used:
            wrong.append("'%s' of the not-supported list matches no export" % glob)
    if wrong:
        fail("\n  ".join(wrong))

    enum = read(os.path.join(options.include, "cuda.h"))
    enum = enum[enum.index("typedef enum cudaError_enum"):]
    enum = enum[:enum.index("} CUresult;")]
    errors = re.findall(r"^\s*(CUDA_\w+)\s*=\s*(\d+)", enum, re.M)

    # cuda.h renames old names to new ones unless __CUDA_API_VERSION_INTERNAL asks it not to, which the
    # whole library is built with. The twins are checked against its prototypes; the tables need only
    # addresses and do without it.
    out = ["// Written by generate.py. Do not edit.",
           "#include <cudaTypedefs.h>", "", '#include "tools/simgpu/driver/export.h"', ""]
    for symbol in twins:
        parameters = prototype[symbol]
        names = [] if parameters.strip() in ("void", "") else [
            re.search(r"(\w+)\s*$", piece).group(1) for piece in parameters.split(",")]
        out.append("SIM_API %s(%s) {\n  const simgpu::driver::PerThreadDefaultStream scope;\n"
                   "  return %s(%s);\n}" % (symbol, parameters, TWIN.sub("", symbol),
                                          ", ".join(names)))
    write(options.out + "/generated_twins.cc", out)

    out = ["// Written by generate.py. Do not edit.",
           '#include "tools/simgpu/driver/generated.h"', "", 'extern "C" {', "#define EXPORT "
           '__attribute__((visibility("default")))']
    for symbol in stubs:
        out.append("EXPORT int %s() { return 801; }  // CUDA_ERROR_NOT_SUPPORTED" % symbol)
    out += ["int %s();" % symbol for symbol in exports if symbol not in set(stubs)]
    out += ["}", "", "namespace simgpu::driver {", "", "const ProcAddress kProcAddresses[] = {"]
    for name, version, per_thread, symbol in rows:
        out.append('    {"%s", %d, %s, reinterpret_cast<void*>(&::%s)},'
                   % (name, version, "true" if per_thread else "false", symbol))
    out += ["};", "const size_t kProcAddressCount = %d;" % len(rows), "",
            "const ErrorText kErrorTexts[] = {"]
    for name, value in errors:
        text = ERROR_TEXTS.get(name) or re.sub("^cuda (error )?", "",
                                               name.lower().replace("_", " "))
        out.append('    {%s, "%s", "%s"},' % (value, name, text))
    out += ["};", "const size_t kErrorTextCount = %d;" % len(errors), "",
            "}  // namespace simgpu::driver", ""]
    write(options.out + "/generated_tables.cc", out)
    print("simgpu: %d exports: %d implemented (%d of them per-thread twins), %d not supported"
          % (len(exports), len(exports) - len(stubs), len(twins), len(stubs)))


def write(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


if __name__ == "__main__":
    main()
