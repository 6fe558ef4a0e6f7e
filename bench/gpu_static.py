#!/usr/bin/env python3
"""What can be said of the CUDA kernels without a GPU: for each kernel and architecture its registers, spills and shared
memory, how many blocks a multiprocessor holds, and with --loops the instructions of its inner loop and the rate of
multiplications at which a named GPU can issue them, beside the rate at which its memory delivers weights.

    bench/gpu_static.py [--arch 75,80,86,89,90,120] [--kernels REGEX] [--loops] [--check] [FILE.cu ...]
    bench/gpu_static.py --tokens [--arch LIST]
    bench/gpu_static.py --prompts [--arch LIST]
    bench/gpu_static.py --verify PAGE [--built FOLDER]

--tokens adds the tokens a second that gpu_layer.py predicts of named GPUs, from the kernels of a decoded token.
--prompts prints the kernels of a prompt's attention, and the least time that gpu_prompt.py derives from their loops.

Needs nvcc and ptxas (NVCC=PATH names nvcc); --loops, --tokens and --prompts also cuobjdump (CUOBJDUMP=PATH; the PyPI package
nvidia-cuda-cuobjdump has it). --check prints only kernels that spill more registers than SPILLS allows, and exits with 1
if there is one. Without nvcc: exit 77.

--verify compiles nothing. It fails if PAGE's predictions are not those that gpu_layer.py makes of PAGE's kernels. FOLDER
has what ptxas said while the module was built (*.ptxas): then it also fails if a kernel spills more than SPILLS allows on
an architecture of PAGE, if a kernel of the predictions does not exist, and, where PAGE names the compiler at hand, if
PAGE's kernels are not the built ones.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import gpu_layer
import gpu_prompt

ROOT = pathlib.Path(__file__).resolve().parent.parent
CUDA = ROOT / "lib/device/cuda"
# The flags of lib/device/cuda/CMakeLists.txt that decide what is compiled.
FLAGS = ["-std=c++17", "-O3", "-fmad=false", f"-I{ROOT}/lib", f"-I{ROOT}", "-D_GNU_SOURCE"]

# Of a multiprocessor: threads, blocks, bytes of shared memory, bytes of it that each block costs in addition.
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". Registers: 65536 everywhere, 255 a
# thread at most, allocated to a warp in units of 256.
LIMITS = {
    75: (1024, 16, 64 << 10, 0),
    80: (2048, 32, 164 << 10, 1024),
    86: (1536, 16, 100 << 10, 1024),
    89: (1536, 24, 100 << 10, 1024),
    90: (2048, 32, 228 << 10, 1024),
    120: (1536, 24, 100 << 10, 1024),
}
# Bytes that kernels whose names begin so may spill. Products by tensor cores: outside of their loops; without spills two
# blocks would share a multiprocessor, not three. The others, on sm_120: around a call.
SPILLS = {"product_mma_kernel<": 128, "gate_kernel<": 32, "delta_place": 32}
# Matrix instructions for one product of each weight: 1 where nothing is said.
REPEATED = {"product_float_mma_kernel<tiles_f16": 3}
ISSUED = 128  # instructions of threads that a multiprocessor issues in a cycle: four schedulers, a warp each


def run(command, what):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"gpu_static: {what} failed:\n{done.stderr.strip()}")
    return done.stdout + done.stderr


def demangle(names):
    out = run(["c++filt", *names], "c++filt").splitlines()
    return {n: re.sub(r"\(.*", "", o).replace("void ", "").replace("(anonymous namespace)::", "") for n, o in zip(names, out)}


class Kernel:
    def __init__(self, source, arch, name):
        self.source, self.arch, self.name = source, arch, name
        self.threads = self.registers = self.shared = self.spilled = 0
        self.loop = None

    def blocks(self):
        """Resident on a multiprocessor; None: the size of a block is not fixed at compile time."""
        if not self.threads or self.arch not in LIMITS:
            return None
        threads, blocks, shared, each = LIMITS[self.arch]
        warps = -(-self.threads // 32)
        registers = -(-self.registers * 32 // 256) * 256 * warps
        most = [blocks, threads // (warps * 32), 65536 // registers]
        if self.shared:
            most.append(shared // (self.shared + each))
        return min(most)


def read_bounds(ptx, kernels):
    """Threads of a block, from __launch_bounds__."""
    for entry, bounds in re.findall(r"\.entry (\w+)\([^)]*\)([^{]*)\{", ptx):
        found = re.search(r"\.maxntid (\d+)(?:, (\d+))?(?:, (\d+))?", bounds)
        if found and entry in kernels:
            kernels[entry].threads = int(found[1]) * int(found[2] or 1) * int(found[3] or 1)


def read_log(log, source):
    """The kernels of what ptxas says with -v."""
    kernel = None
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)' for 'sm_(\d+)", line):
            kernel = Kernel(source, int(found[2]), found[1])
        elif kernel and (found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            kernel.spilled = int(found[1]) + int(found[2])
        elif kernel and (found := re.search(r"Used (\d+) registers", line)):
            kernel.registers = int(found[1])
            shared = re.search(r"(\d+) bytes smem", line)
            kernel.shared = int(shared[1]) if shared else 0
            yield kernel
            kernel = None


def compile_one(nvcc, source, arch, folder):
    """Compiles a source for an architecture. Returns its kernels by their mangled names, and the cubin."""
    base = pathlib.Path(folder) / f"{source.stem}-{arch}"
    ptx, cubin = f"{base}.ptx", f"{base}.cubin"
    run([nvcc, *FLAGS, f"-arch=compute_{arch}", "-ptx", str(source), "-o", ptx], f"nvcc of {source.name} for {arch}")
    ptxas = str(pathlib.Path(shutil.which(nvcc)).resolve().with_name("ptxas"))
    log = run([ptxas, "-v", f"-arch=sm_{arch}", ptx, "-o", cubin], f"ptxas of {source.name} for {arch}")
    kernels = {k.name: k for k in read_log(log, source.name)}
    read_bounds(pathlib.Path(ptx).read_text(), kernels)
    return kernels, cubin


# ---- inner loops ----


class Loop:
    """A loop: the instructions between the target of a backward branch and the branch, those of inner loops once."""

    def __init__(self, lines):
        self.instructions = len(lines)
        self.dots = sum(bool(re.search(r"\bIDP\.", x)) for x in lines)
        mma = [m for x in lines if (m := re.search(r"\b[IHQ]MMA\.(16|8)(8)(\d+)", x))]
        self.mma = len(mma)
        self.floats = sum(bool(re.search(r"\bF(FMA|MUL|ADD)\b", x)) for x in lines)
        # A dp4a multiplies four pairs; a warp's mma m * n * k, shared by 32 threads.
        self.products = 4 * self.dots + sum(int(m[1]) * int(m[2]) * int(m[3]) // 32 for m in mma)
        self.bytes = sum(self.loaded(x) for x in lines)

    @staticmethod
    def loaded(line):
        if not re.search(r"\b(LDG|LDGSTS)\b|\b(LDG|LDGSTS)\.", line):
            return 0
        found = re.search(r"\.(128|64|U16|S16|U8|S8)\b", line)
        return {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}[found[1]] if found else 4


def inner_loop(code):
    """The loop with the most products an instruction; without any, the innermost loop that loads most; None: neither."""
    at, lines = {}, []
    for address, text in re.findall(r"/\*([0-9a-f]{4,})\*/\s+([^;]*);", code):
        at[int(address, 16)] = len(lines)
        lines.append(text)
    loops = []
    for i, text in enumerate(lines):
        found = re.search(r"\bBRA\b.*?0x([0-9a-f]+)", text)
        if found and (begin := at.get(int(found[1], 16))) is not None and begin < i:
            loops.append((begin, i))
    working = [l for l in (Loop(lines[a : b + 1]) for a, b in loops) if l.products]
    if working:
        return max(working, key=lambda l: l.products / l.instructions)
    innermost = [l for l in loops if not any(l != k and l[0] <= k[0] and k[1] <= l[1] for k in loops)]
    found = [Loop(lines[a : b + 1]) for a, b in innermost]
    return max((l for l in found if l.bytes), key=lambda l: l.bytes, default=None)


def read_loops(cuobjdump, cubin, kernels):
    text = run([cuobjdump, "-sass", cubin], "cuobjdump")
    for part in text.split("Function : ")[1:]:
        name = part.split(None, 1)[0]
        if name in kernels:
            kernels[name].loop = inner_loop(part)


# ---- the table ----


def print_table(kernels, loops):
    names = demangle([k.name for k in kernels])
    head = "| kernel | sm | threads | registers | spilled | shared | blocks | threads resident |"
    print(head + (" loop | dp4a | mma | bytes |" if loops else ""))
    print("|---" * (head.count("|") - 1 + (4 if loops else 0)) + "|")
    for k in sorted(kernels, key=lambda k: (k.source, names[k.name], k.arch)):
        blocks = k.blocks()
        row = [f"`{names[k.name]}`", k.arch, k.threads or "any", k.registers, k.spilled, k.shared, blocks or "",
               blocks * k.threads if blocks else ""]
        if loops:
            l = k.loop
            row += [l.instructions, l.dots, l.mma, l.bytes] if l else [""] * 4
        print("| " + " | ".join(map(str, row)) + " |")


def print_rates(kernels):
    """What the instructions of the loops allow, in 10^9 products a second; for one token a weight is one product."""
    gpus = [g for g in gpu_layer.GPUS if any(k.arch == g.arch for k in kernels)]
    print("\n| kernel, 10^9 products a second | " + " | ".join(g.name for g in gpus) + " |")
    print("|---" * (len(gpus) + 1) + "|")
    names, found = demangle([k.name for k in kernels]), {}
    for k in kernels:
        if k.loop and k.loop.products:
            found.setdefault((k.source, names[k.name]), {})[k.arch] = k.loop
    for (_, name), by_arch in sorted(found.items()):
        row = []
        for g in gpus:
            l = by_arch.get(g.arch)
            times = next((n for k, n in REPEATED.items() if name.startswith(k)), 1)
            rate = ISSUED * g.multiprocessors * g.ghz
            row.append(f"{rate * l.products / times / l.instructions:.0f}" if l else "")
        print(f"| `{name}` | " + " | ".join(row) + " |")
    if any(k.loop and k.loop.mma for k in kernels):
        for i, what in enumerate(("int8", "BF16")):
            rates = (f"{gpu_layer.TENSOR[g.arch][i] * g.multiprocessors * g.ghz:.0f}" for g in gpus)
            print(f"| tensor cores, {what} | " + " | ".join(rates) + " |")
    for bits in 4.5, 8.5:
        print(f"| memory, weights of {bits} bits | " + " | ".join(f"{g.memory * 8 / bits:.0f}" for g in gpus) + " |")


# ---- predictions ----


def print_tokens(kernels):
    names = demangle([k.name for k in kernels])
    rows = [(names[k.name], k.arch, k.blocks(), k.loop.instructions if k.loop else 0, k.loop.dots if k.loop else 0) for k in kernels]
    print("\n" + "\n".join(gpu_layer.tables(gpu_layer.builds_of(rows, LIMITS))))


def print_prompts(kernels):
    names = demangle([k.name for k in kernels])
    print("\n" + "\n".join(gpu_prompt.table(gpu_prompt.loops_of((names[k.name], k.arch, k.loop) for k in kernels))))


SECTION = "## Tokens a second"


def page_section(text):
    """The lines of the page's section with predictions."""
    return text.partition(SECTION + "\n")[2].partition("\n## ")[0].splitlines()


def page_kernels(lines):
    """The rows of print_table with loops, as dictionaries by the names of the columns."""
    columns = None
    for line in lines:
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            columns = None
        elif cells[:2] == ["kernel", "sm"] and "loop" in cells:
            columns = cells
        elif columns and len(cells) == len(columns) and cells[0].startswith("`"):
            row = dict(zip(columns, cells))
            yield row | {"kernel": cells[0].strip("`"), "sm": int(row["sm"])}


def compiler_of(text):
    found = re.search(r"nvcc (\d+\.\d+\.\d+)", text)
    return found[1] if found else ""


def read_built(folder):
    """The kernels that the build compiled, from what ptxas said."""
    kernels = []
    for file in sorted(folder.rglob("*.ptxas")):
        kernels += read_log(file.read_text(), file.name.split(".")[0] + ".cu")
    if not kernels:
        sys.exit(f"gpu_static: {folder} has no kernels (*.ptxas)")
    return kernels


def spills(kernels):
    """Of the kernels that spill more than they may."""
    names = demangle([k.name for k in kernels]) if kernels else {}
    for k in kernels:
        if k.spilled > next((most for begin, most in SPILLS.items() if names[k.name].startswith(begin)), 0):
            yield f"{k.source}: {names[k.name]} spills {k.spilled} bytes on sm_{k.arch} ({k.registers} registers)"


def built_faults(rows, built, same_compiler):
    """rows: the page's."""
    archs = {row["sm"] for row in rows}
    yield from spills([k for k in built if k.arch in archs])
    names = demangle([k.name for k in built])
    for name in sorted(gpu_layer.KERNELS - set(names.values())):
        yield f"gpu_layer.py: the module has no kernel {name}"
    found = {(names[k.name], k.arch): k for k in built}
    for row in rows if same_compiler else ():
        k = found.get((row["kernel"], row["sm"]))
        if k and (k.registers, k.spilled, k.shared) != tuple(int(row[c]) for c in ("registers", "spilled", "shared")):
            yield (f"{row['kernel']} has {k.registers} registers on sm_{k.arch}, {k.spilled} bytes spilled, {k.shared} shared; "
                   f"the page says {row['registers']}, {row['spilled']}, {row['shared']}")


def verify(page, folder):
    lines = page_section(page.read_text())
    rows = list(page_kernels(lines))
    loops = [(r["kernel"], r["sm"], int(r["blocks"] or 0), int(r["loop"] or 0), int(r["dp4a"] or 0)) for r in rows]
    there = set(lines)
    faults = [f"not in {page.name}: {line}" for line in gpu_layer.tables(gpu_layer.builds_of(loops, LIMITS)) if line not in there]
    if not rows:
        faults = [f"{page.name} has no kernels"]
    says = f"{len(rows)} kernels of {page.name}"
    if folder:
        built, nvcc = read_built(folder), shutil.which(os.environ.get("NVCC", "nvcc"))
        version = re.search(r"V(\d+\.\d+\.\d+)", run([nvcc, "--version"], "nvcc")) if nvcc else None
        same = version is not None and version[1] == compiler_of("\n".join(lines))
        faults += built_faults(rows, built, same)
        says += f", {len(built)} built" + ("" if same else " by another compiler than the page's")
    print("\n".join([*faults, f"{says}, {len(faults)} faults"]))
    sys.exit(1 if faults else 0)


def compile_all(nvcc, cuobjdump, files, archs, loops):
    kernels = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compile_one, nvcc, f, a, folder) for f in files for a in archs]
        for job in jobs:
            found, cubin = job.result()
            if loops and found:
                read_loops(cuobjdump, cubin, found)
            kernels += found.values()
    return kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="75,80,86,89,90,120", help="compute capabilities, as 75,90")
    parser.add_argument("--kernels", default="", metavar="REGEX", help="only kernels of this name")
    parser.add_argument("--loops", action="store_true", help="disassemble, and add the inner loops")
    parser.add_argument("--check", action="store_true", help="fail if a kernel spills registers")
    parser.add_argument("--tokens", action="store_true", help="a decoded token's kernels, and tokens/s from them")
    parser.add_argument("--prompts", action="store_true", help="a prompt's attention, and its least time")
    parser.add_argument("--verify", type=pathlib.Path, metavar="PAGE", help="compare a page of results with the code")
    parser.add_argument("--built", type=pathlib.Path, metavar="FOLDER", help="with --verify: of the module's objects")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="sources; default: all of lib/device/cuda")
    options = parser.parse_args()
    if options.verify:
        verify(options.verify, options.built)
    nvcc, cuobjdump = os.environ.get("NVCC", "nvcc"), os.environ.get("CUOBJDUMP", "cuobjdump")
    archs = [int(a) for a in re.split("[,;]", options.arch)]
    if unknown := [a for a in archs if a not in LIMITS]:
        sys.exit(f"gpu_static: no limits are known of architecture {unknown[0]}; known: {', '.join(map(str, LIMITS))}")
    if not shutil.which(nvcc):
        print("skipped: nvcc is not installed (NVCC=PATH names one)")
        sys.exit(77)
    loops = options.loops or options.tokens or options.prompts
    if loops and not shutil.which(cuobjdump):
        sys.exit("gpu_static: --loops, --tokens and --prompts need cuobjdump (CUOBJDUMP=PATH, or pip install nvidia-cuda-cuobjdump)")
    sources = gpu_layer.SOURCES if options.tokens else ["attention_many", "attention_latent"] if options.prompts else []
    every = [CUDA / f"{name}.cu" for name in sources] or sorted(CUDA.glob("*.cu"))
    kernels = compile_all(nvcc, cuobjdump, options.files or every, archs, loops)
    names = demangle([k.name for k in kernels]) if kernels else {}
    kernels = [k for k in kernels if re.search(options.kernels, names[k.name])]
    if options.tokens:
        print("\n".join(spills(kernels)), file=sys.stderr)
        kernels = [k for k in kernels if names[k.name] in gpu_layer.KERNELS]
    if not kernels:
        sys.exit("gpu_static: there is no such kernel")
    if not options.check:
        print_table(kernels, loops)
        if options.tokens:
            print_tokens(kernels)
        elif options.prompts:
            print_prompts(kernels)
        elif loops:
            print_rates(kernels)
        return
    found = list(spills(kernels))
    print("\n".join([*found, f"{len(kernels)} kernels of {len(archs)} architectures, {len(found)} spill"]))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
