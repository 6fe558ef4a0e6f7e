"""A decoded token on a GPU, launch by launch, without a GPU: what each launch must read, what its code executes, and how
often it waits for memory; summed over the layers of a model into tokens a second. gpu_static.py prints it.

The time of a launch is

    starting it + its waits for memory, one after the other + the longest of
        its bytes at the memory's rate
        its instructions at the rate at which all multiprocessors issue
        the instructions of its slowest warp

The launches are those of docs/design/gpu.md, "A decoded layer is 11 launches". From the code as it is compiled: the
instructions of the products' inner loop. From the source, by formulas below: bytes and blocks; by counting in the
source: waits, and the steps of the other kernels. All else is an assumption, in ASSUMED.
"""
import collections
import re

# Of NVIDIA's documents: name, architecture, multiprocessors, boost clock in GHz, memory in GB/s, link in GB/s a direction
# (PCI Express 3.0, 4.0 and 5.0 with 16 lanes and 128 of 130 bits).
#   2080 Ti  Turing GPU architecture, WP-09183: reference board
#   A100     A100 80GB data sheet (SXM); GA100 architecture for multiprocessors and clock
#   3060     GeForce RTX 3060 specifications, 12 GB: 3584 cores of 128 a multiprocessor
#   3090     GA102 GPU architecture
#   4090     Ada GPU architecture
#   H100     H100 data sheet (SXM); GH100 architecture for multiprocessors
#   H200     H200 data sheet (SXM); as H100 otherwise
#   5090     RTX Blackwell GPU architecture
GPU = collections.namedtuple("GPU", "name arch multiprocessors ghz memory link")
GPUS = [
    GPU("2080 Ti", 75, 68, 1.545, 616, 15.75),
    GPU("A100 80GB", 80, 108, 1.410, 2039, 31.5),
    GPU("3060", 86, 28, 1.777, 360, 31.5),
    GPU("3090", 86, 82, 1.695, 936, 31.5),
    GPU("4090", 89, 128, 2.520, 1008, 31.5),
    GPU("H100", 90, 132, 1.980, 3350, 63.0),
    GPU("H200", 90, 132, 1.980, 4800, 63.0),
    GPU("5090", 120, 170, 2.407, 1792, 63.0),
]
SCHEDULERS = 4  # of a multiprocessor; each issues an instruction of a warp in a cycle
# Products that a multiprocessor's tensor cores do in a cycle, dense: of int8; of BF16 or FP16 with float32 sums. From the rates
# of the same documents: 4090 660 and 165 T operations/s, 3090 284 and 71, A100 624 and 312, H100 1979 and 989 at 1.83 GHz.
TENSOR = {75: (1024, 256), 80: (2048, 1024), 86: (1024, 256), 89: (1024, 256), 90: (4096, 2048), 120: (1024, 256)}

# What no document and no disassembly says, from the good case to the bad one. gpu.md's open questions name what measures it.
ASSUMED = {
    "launch": (1.0, 2.0),  # us from one kernel's end to the next one's begin, in a graph
    "launch_early": (0.5, 1.0),  # the same with programmatic dependent launch, from compute capability 9.0
    "wait": (0.4, 0.8),  # us of a wait for memory or for another block
    "memory": (0.92, 0.80),  # share of the data sheet's rate that a kernel reaches
    "cycles": (1.5, 3.0),  # of an instruction, in a warp that has a scheduler nearly to itself
    "token": (20, 60),  # us a token on the host: choose it, send it, prepare the next batch
    "plan": (15, 40),  # us a layer that the host plans: wait for the gate, plan, queue
    "link": (0.83, 0.70),  # share of the link's rate, segment by segment
}
GOOD, BAD = 0, 1

TILE_ROWS, GROUP = 16, 256
# Bytes of 16 rows of 256 columns (lib/kernels/tile_layout.h), and the struct of tiles.cuh.
TYPES = {"F32": (16384, "tiles_f32"), "Q4_K": (2304, "tiles_q4_k"), "Q6_K": (3360, "tiles_q6_k")}

# Of an architecture, as compiled: by struct of tiles.cuh the products' instructions for a weight; by kernel the blocks that a
# multiprocessor holds for their registers; bytes of shared memory of a multiprocessor, and those that a block costs besides.
Built = collections.namedtuple("Built", "instructions blocks shared shared_a_block")

Model = collections.namedtuple(
    "Model", "name layers d heads kv_heads head_dim experts used segments width vocab type head"
)
MODELS = {
    # Qwen/Qwen3-30B-A3B's config.json; experts in three segments of 256 columns each.
    "qwen3-30b": Model("Qwen3-30B-A3B, Q4_K", 48, 2048, 32, 4, 128, 128, 8, 3, 256, 151936, "Q4_K", "Q4_K"),
    # What tests/gpu/run measures.
    "measured": Model("the model of tests/gpu/run", 12, 2048, 32, 4, 128, 128, 8, 3, 256, 32000, "Q4_K", "Q4_K"),
}
DEPTH = 512  # positions in the KV cache, F16

# kernel: its name, as compiled; bytes: read and written; instructions: of all warps; path: instructions of the slowest warp of
# a block; cycles: further ones, for steps that it takes one after the other; waits: one after the other; shared: of a block.
Launch = collections.namedtuple("Launch", "name kernel blocks bytes instructions path cycles waits shared")


def steps(name, kernel, blocks, bytes_, waits, cycles):
    """A small kernel, whose time is its chain of steps. cycles: counted in the source."""
    return Launch(name, kernel, blocks, bytes_, 0, 0, cycles, waits, 0)


def product(name, parts, built, waits, kernel="quantized_products<1u>"):
    """parts: (rows, columns, type, matrices, how many matrices share a tile row's sums)."""
    bytes_ = blocks = instructions = most = shared = 0
    for rows, cols, type_, n, joined in parts:
        tile_rows, groups = -(-rows // TILE_ROWS), -(-cols // GROUP)
        halves = min(joined * groups, 8)  # product_shape in product.cuh
        tiles = min(8 // halves, tile_rows)
        blocks += n * -(-tile_rows // tiles)
        slices = n * joined * tile_rows * groups
        size, struct = TYPES[type_]
        bytes_ += slices * size
        a_slice = GROUP * built.instructions[struct]
        instructions += slices / 2 * a_slice  # a warp has two slices at a time
        most = max(most, -(-joined * groups // halves) * a_slice)
        shared = max(shared, 8 * ((size + 127) // 128 * 128 + 64) + tiles * joined * groups * TILE_ROWS * 4)
    return Launch(name, kernel, blocks, bytes_, instructions, most, 0, waits, shared)


def attention(m, depth, multiprocessors):
    """attend_tile: 4 queries a block where 8 would leave half of the multiprocessors idle."""
    blocks = -(-depth // 256)
    group = m.heads // m.kv_heads
    wide = blocks * m.kv_heads * -(-group // 8)
    queries = 4 if 2 * wide <= multiprocessors else 8
    tiles = -(-group // queries)
    grid = blocks * m.kv_heads * tiles
    # For each query, position and dimension a product of keys and one of values; with loads and conversions three
    # instructions. A softmax of a position takes about 30.
    work = min(depth, 256) * queries * (3 * m.head_dim + 30) / 32
    bytes_ = 2 * 2 * depth * m.kv_heads * m.head_dim
    # Waits: the row, the page table, keys and values on the way, keys in four parts, the first values, the sums.
    kernel = f"attend_tile<unsigned short, {queries}>"
    return Launch("attention", kernel, grid, bytes_, grid * work, work / 4, 0, 8, 0)


def layer(m, gpu, built, depth, resident):
    """resident: how many of the used experts are on the device."""
    heads = m.heads + 2 * m.kv_heads
    q, kv = m.heads * m.head_dim, m.kv_heads * m.head_dim
    x, pieces = 4 * m.d, m.segments
    # A norm: one warp adds squares, 4 cycles each, and its loads; then 256 threads quantise.
    norm = steps("norm", "norm_wide", 1, 3 * x, 2, m.d / 16 * 4 + m.d / 128 * 30 + m.d / 256 * 200)
    # A router's unit is 256 fused operations one after the other; then each choice is 5 exchanges of three values.
    chooses = 256 * 5 + 400 + m.used * 475 + 500
    return [
        norm,
        product("q, k, v", [(q, m.d, m.type, 1, 1), (kv, m.d, m.type, 2, 1)], built, 2),
        steps("place", "place_kernel", -(-heads // 4), 8 * heads * m.head_dim, 4, 400),
        attention(m, depth, gpu.multiprocessors),
        steps("merge", "merge_blocks", m.heads, 8 * q, 3, 300),
        product("output", [(m.d, q, m.type, 1, 1)], built, 2),
        norm,
        steps("gate", "gate_kernel<tiles_f32>", m.experts // 16 * m.d // 256, 4 * m.experts * m.d, 7, chooses),
        product("gate and up", [(m.width, m.d, m.type, resident * pieces, 2)], built, 4),
        product("down", [(m.d, m.width, m.type, resident, pieces)], built, 3),
        steps("combine", "combine_rows", -(-m.d // 256), (m.used + 2) * x, 3, 200),
    ]


def ends(m, built):
    """What a token has once."""
    return [
        steps("embed", f"embed_kernel<{TYPES[m.type][1]}>", -(-m.d // 32 // 128), m.d * 5, 3, 300),
        steps("norm", "norm_wide", 1, 12 * m.d, 2, m.d / 16 * 4 + m.d / 128 * 30 + m.d / 256 * 200),
        product("head", [(m.vocab, m.d, m.head, 1, 1)], built, 2, f"product_kernel<{TYPES[m.head][1]}, 1u>"),
        steps("largest", "largest_of_part", -(-m.vocab // 8192), 4 * m.vocab, 4, 6000),
        steps("largest of those", "largest_of_row", 1, 1 << 14, 4, 6000),
    ]


def resident_blocks(l, built):
    """Of a multiprocessor; 1 where registers are not known."""
    blocks = built.blocks.get(l.kernel, 1)
    return min(blocks, built.shared // (l.shared + built.shared_a_block)) if l.shared else blocks


def parts_us(l, gpu, built, case):
    """Of a launch: starting, waiting, memory, issuing, its slowest warp."""
    clock = gpu.ghz * 1e3  # cycles in a us
    rounds = -(-l.blocks // (gpu.multiprocessors * resident_blocks(l, built)))
    return (
        ASSUMED["launch_early" if gpu.arch >= 90 else "launch"][case],
        l.waits * ASSUMED["wait"][case],
        l.bytes / (gpu.memory * 1e3 * ASSUMED["memory"][case]),
        l.instructions / (SCHEDULERS * gpu.multiprocessors * clock),
        rounds * (l.path * ASSUMED["cycles"][case] + l.cycles) / clock,
    )


def launch_us(l, gpu, built, case):
    start, wait, *work = parts_us(l, gpu, built, case)
    return start + wait + max(work)


def expert_bytes(m):
    return 3 * m.segments * m.width // TILE_ROWS * m.d // GROUP * TYPES[m.type][0]


def token_us(m, gpu, built, case, depth=DEPTH, hits=None, more=0):
    """hits: the share of the used experts that are on the device, the rest over the link; None: all are, without a plan.
    more: further launches of a layer, with two waits each."""
    here = m.used if hits is None else max(1, round(hits * m.used))
    us = ASSUMED["token"][case] + sum(launch_us(l, gpu, built, case) for l in ends(m, built))
    a_layer = sum(launch_us(l, gpu, built, case) for l in layer(m, gpu, built, depth, here))
    a_layer += more * launch_us(steps("", "", 1, 0, 2, 0), gpu, built, case)
    if hits is not None:
        a_layer += ASSUMED["plan"][case]
        a_layer += (1 - hits) * m.used * expert_bytes(m) / (gpu.link * 1e3 * ASSUMED["link"][case])
        # What has arrived is computed while the rest is on the link; the last expert is not.
        a_layer += sum(launch_us(l, gpu, built, case) for l in layer(m, gpu, built, depth, 1) if l.name in ("gate and up", "down"))
    return us + m.layers * a_layer


def token_bytes(m, gpu, built, depth=DEPTH):
    once = sum(l.bytes for l in ends(m, built))
    return once + m.layers * sum(l.bytes for l in layer(m, gpu, built, depth, m.used))


def bound(m, gpu, built):
    """Tokens a second if only the memory counted, at the data sheet's rate."""
    return gpu.memory * 1e9 / token_bytes(m, gpu, built)


def link_bound(m, gpu, hits):
    """The same of the link."""
    return gpu.link * 1e9 / (m.layers * (1 - hits) * m.used * expert_bytes(m))


# ---- tables ----

# Tokens a second of Qwen3-30B-A3B, Q4_K, all resident: an estimate when a layer had 22 launches, and the goal.
EARLIER = {"H200": (260, 600), "4090": (225, 400)}
EARLIER_LAUNCHES = 22
HITS = (0.25, 0.6)


def rate(us):
    per_s = 1e6 / us
    return f"{per_s:.0f}" if per_s >= 20 else f"{per_s:.1f}"


def row(cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def head(cells):
    return [row(cells), "|---" * len(cells) + "|"]


def resident_table(key, builds):
    m = MODELS[key]
    earlier = key == "qwen3-30b"
    lines = head([f"{m.name}, all resident, tokens/s", "MB a token", "bound by memory", "predicted, bad case", "good case"]
                 + (["with 22 launches a layer", "good case", "its estimate", "goal", "goal is reached"] if earlier else []))
    for gpu in GPUS:
        if gpu.arch not in builds:
            continue
        built = builds[gpu.arch]
        bad, good = (1e6 / token_us(m, gpu, built, case) for case in (BAD, GOOD))
        cells = [gpu.name, f"{token_bytes(m, gpu, built) / 1e6:.0f}", f"{bound(m, gpu, built):.0f}", f"{bad:.0f}", f"{good:.0f}"]
        if earlier:
            before, goal = EARLIER.get(gpu.name, ("", ""))
            says = "" if not goal else "yes" if bad >= goal else "in the good case" if good >= goal else "no"
            more = EARLIER_LAUNCHES - len(layer(m, gpu, built, DEPTH, m.used))
            cells += [f"{1e6 / token_us(m, gpu, built, case, more=more):.0f}" for case in (BAD, GOOD)]
            cells += [before, goal, says]
        lines.append(row(cells))
    return lines


def link_table(key, builds):
    m = MODELS[key]
    lines = head([f"{m.name}, a quarter resident, tokens/s"] + [f"{h:.0%} hits: link alone | bad case | good case" for h in HITS])
    lines[1] = "|---" * (1 + 3 * len(HITS)) + "|"
    for gpu in GPUS:
        if gpu.arch not in builds:
            continue
        cells = [gpu.name]
        for hits in HITS:
            cells += [f"{link_bound(m, gpu, hits):.0f}"]
            cells += [rate(token_us(m, gpu, builds[gpu.arch], case, hits=hits)) for case in (BAD, GOOD)]
        lines.append(row(cells))
    return lines


def layer_table(key, name, builds):
    """Where the time of a layer goes."""
    m, gpu = MODELS[key], next(g for g in GPUS if g.name == name)
    built = builds[gpu.arch]
    lines = head([f"{m.name} on {name}: launch", "kernel", "blocks", "MB", "starts, us", "waits", "memory", "issue",
                  "slowest warp", "bad case", "good case"])
    total = [0.0, 0.0]
    for l in layer(m, gpu, built, DEPTH, m.used):
        us = [launch_us(l, gpu, built, case) for case in (BAD, GOOD)]
        total = [t + u for t, u in zip(total, us)]
        cells = [f"{u:.2f}" for u in parts_us(l, gpu, built, GOOD)]
        lines.append(row([l.name, f"`{l.kernel}`", l.blocks, f"{l.bytes / 1e6:.2f}", *cells, *(f"{u:.1f}" for u in us)]))
    lines.append(row(["the layer", "", "", "", "", "", "", "", "", *(f"{t:.1f}" for t in total)]))
    return lines


def tables(builds):
    """builds: a struct Built by architecture. Lines of markdown."""
    lines = []
    for table in (resident_table("qwen3-30b", builds), link_table("qwen3-30b", builds), resident_table("measured", builds),
                  *(layer_table("qwen3-30b", name, builds) for name in ("4090", "H200")
                    if next(g for g in GPUS if g.name == name).arch in builds)):
        lines += table + [""]
    return lines[:-1]


# ---- what is compiled ----

# The kernels that a decoded token of these models launches, and the sources that have them.
NO_BUILD = Built(collections.defaultdict(float), {}, 0, 0)
KERNELS = {l.kernel for m in MODELS.values() for g in GPUS for l in layer(m, g, NO_BUILD, DEPTH, m.used) + ends(m, NO_BUILD)}
KERNELS |= {f"product_kernel<{TYPES[m.type][1]}, 1u>" for m in MODELS.values()}
SOURCES = ["attention", "attention_tile", "elementwise", "embed", "gate", "multiply_256", "multiply_set", "norm", "place", "sampling"]


def builds_of(rows, limits):
    """rows: (kernel's name, architecture, blocks of a multiprocessor or None, instructions of its loop, dp4a in it)."""
    builds = {}
    for name, arch, blocks, instructions, dots in rows:
        built = builds.setdefault(arch, Built({}, {}, *limits[arch][2:]))
        if blocks:
            built.blocks[name] = blocks
        if (of := re.fullmatch(r"product_kernel<(\w+), 1u?>", name)) and dots:
            built.instructions[of[1]] = instructions / (4 * dots)
    return builds
