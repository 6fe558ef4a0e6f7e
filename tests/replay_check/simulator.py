"""A second simulator of policies on a routing trace, for comparison with moed-replay.

Written from the definitions in docs/replay.md (cost model), docs/design/replay.md (order of events, bound),
docs/design/prefetching.md (order of transfers), docs/design/caching.md and docs/design/assignment.md. It knows
policies without predictions: load-all or q*, with the caches none, lru, lfu, learned, lru-allocated and belady."""
import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

CHUNK = 512  # tokens of a prefill chunk
SPLIT_TOKENS = 256  # steps with more rows split no expert
FLOPS_PER_BYTE = 2 / (4.5 / 8)  # of experts: multiply and add, 4.5 bits a weight
DENSE_FLOPS_PER_BYTE = 2
NEVER = math.inf

# assigner, cache, budget; qstar's assigner is named, whatever the preset has
POLICIES = {
    "ondemand": ("load-all", "none", "global"),
    "lru": ("load-all", "lru", "uniform"),
    "lfu": ("load-all", "lfu", "uniform"),
    "qstar/assign=qstar": ("qstar", "lru", "global"),
    "flashmoe": ("load-all", "learned", "uniform"),
    "adapmoe/predictor=none": ("load-all", "allocated", "uniform"),
    "belady": ("load-all", "belady", "global"),
    "qstar/cache=belady": ("qstar", "belady", "global"),
}
PLAN_SHARE = 0.3  # of `plan-expert`, for both assigners


# ---- The cost model ----


@dataclass
class Line:
    """Seconds of a segment: base + tokens * slope."""

    base: float
    slope: float

    def __call__(self, tokens):
        return self.base + tokens * self.slope


def fit_line(bytes_s, token_s):
    """Exact for one token; the slope has the least squared relative errors at 1, 2, 4, ... 128 tokens."""
    tokens = 2.0 ** np.arange(1, 8)
    times = np.maximum(bytes_s, tokens * token_s)
    first = max(bytes_s, token_s)
    weights = ((tokens - 1) / times) ** 2
    slope = np.average((times - first) / (tokens - 1), weights=weights)
    return Line(max(0.0, first - slope), slope)


class Costs:
    def __init__(self, machine, trace):
        size, m = trace.segment_bytes, machine
        flop = size * FLOPS_PER_BYTE
        dram, cpu, link = m["dram"], m["cpu"], m["link"]
        cpu_shared = min(cpu, max(dram / 2, dram - link))
        link_shared = min(link, max(dram / 2, dram - cpu))
        self.load = m["link-latency"] + size / link
        self.load_contended = m["link-latency"] + size / link_shared
        self.device = fit_line(size / m["device"], flop / m["device-compute"])
        self.cpu = fit_line(size / cpu, flop / m["cpu-compute"])
        self.cpu_contended = fit_line(size / cpu_shared, flop / m["cpu-compute"])
        self.machine = m
        self.dense_bytes = trace.dense_bytes / trace.n_layers

    def dense(self, tokens):
        m = self.machine
        reading = self.dense_bytes / m["device"]
        computing = tokens * self.dense_bytes * DENSE_FLOPS_PER_BYTE / m["device-compute"]
        return m["attention"] + max(reading, computing)


# ---- Steps ----


def steps_of(trace, batch):
    """Lists of (sequence, token), and whether they decode. Each prompt is computed alone, in chunks; then the
    sequence joins the batch. The end: too few sequences are left to fill the batch."""
    places, following = [None] * batch, 0
    while True:
        for i in range(batch):
            while places[i] is None or places[i][1] == trace.sequences[places[i][0]].n_tokens:
                if following == len(trace.sequences):
                    return
                prompt = trace.sequences[following].n_prompt
                for begin in range(0, prompt, CHUNK):
                    yield [(following, t) for t in range(begin, min(begin + CHUNK, prompt))], False
                places[i] = (following, prompt)
                following += 1
        yield list(places), True
        places = [(sequence, token + 1) for sequence, token in places]


def uses_of(trace, batch):
    """For each step: whether it decodes, its number of tokens, and for each layer {expert: tokens}."""
    for step, decodes in steps_of(trace, batch):
        rows = np.stack([trace.sequences[s].selected[t] for s, t in step])
        layers = []
        for layer in range(rows.shape[1]):
            experts, tokens = np.unique(rows[:, layer], return_counts=True)
            layers.append(dict(zip(experts.tolist(), tokens.tolist())))
        yield decodes, len(step), layers


class Future:
    """When each expert is used: times are step * layers + layer."""

    def __init__(self, steps):
        self.times = {}
        for step, (_, _, layers) in enumerate(steps):
            for layer, experts in enumerate(layers):
                for expert in experts:
                    self.times.setdefault((layer, expert), []).append(step * len(layers) + layer)

    def next_use(self, slab, now):
        """The first use after now."""
        times = self.times.get(slab, [])
        at = bisect_right(times, now)
        return times[at] if at < len(times) else NEVER


# ---- FlashMoE's regression ----


class Distances:
    """The mean distance to the next use, by classes of age and of frequency, in steps of the layer; all layers share
    it. A layer's experts are noted after a step, and counted when three quarters of their number of steps are over."""

    PRIOR = 8

    def __init__(self, n_layers, n_experts):
        self.cap = max(2, n_experts * 3 // 4)
        self.n_experts = n_experts
        self.steps = [0] * n_layers
        self.noted = [None] * n_layers  # (step, [class of each expert])
        self.uses = [[[] for _ in range(n_experts)] for _ in range(n_layers)]
        self.sums = {}

    def class_of(self, layer, expert, now):
        uses = self.uses[layer][expert]
        most = max(len(u) for u in self.uses[layer])
        age = "never" if not uses else 0 if uses[-1] == now else 1 + min(8, int(math.log2(now - uses[-1])))
        return age, min(7, 8 * len(uses) // most) if most else 0

    def distance(self, key):
        age = key[0]
        first = self.cap if age == "never" else 1 if age == 0 else min(self.cap, 2 ** (age - 1) + 1)
        total, n = self.sums.get(key, (0, 0))
        return (self.PRIOR * first + total) / (self.PRIOR + n)

    def routed(self, layer, experts):
        for expert in experts:
            self.uses[layer][expert].append(self.steps[layer] + 1)

    def step_over(self, layer):
        self.steps[layer] += 1
        now = self.steps[layer]
        if self.noted[layer] and now - self.noted[layer][0] < self.cap:
            return
        if self.noted[layer]:
            since, classes = self.noted[layer]
            for expert, key in enumerate(classes):
                after = [u - since for u in self.uses[layer][expert] if u > since]
                total, n = self.sums.get(key, (0, 0))
                self.sums[key] = total + min(after + [self.cap]), n + 1
        self.noted[layer] = now, [self.class_of(layer, e, now) for e in range(self.n_experts)]


# ---- The device's memory ----


class Memory:
    """Slots, what they hold, and the cache's choice of victims. All segments have the same size."""

    def __init__(self, trace, share, cache, budget, future):
        segments = trace.n_segments
        self.n_expert_layers = trace.n_layers - trace.first_layer
        total = self.n_expert_layers * trace.n_experts * segments
        self.n_slots = min(total, int(share * total))
        self.reserve = 0 if self.n_slots >= total else min(trace.n_used * segments, self.n_slots // 8)
        self.layer_share = (self.n_slots - self.reserve) // self.n_expert_layers
        self.cache, self.budget, self.future = cache, budget, future
        experts = (self.n_slots - self.reserve) // segments  # of `allocated`: without predictions in equal parts
        whole, more = divmod(min(experts, self.n_expert_layers * trace.n_experts), self.n_expert_layers)
        self.shares = [(whole + (layer < more)) * segments for layer in range(self.n_expert_layers)]
        self.resident = {}  # (layer, expert): segments, if any
        self.by_layer = [0] * self.n_expert_layers
        self.last_use, self.tokens, self.clock = {}, {}, 0
        self.locked = 0  # slots evicted while the device reads: reusable when it has read
        self.filling = None
        self.now = 0  # of the future
        self.distances = Distances(self.n_expert_layers, trace.n_experts)
        self.layer = None  # under way

    def keeps_loads(self):
        return self.cache != "none"

    def of(self, slab):
        return self.resident.get(slab, 0)

    def n_free(self):
        return self.n_slots - sum(self.by_layer) - (self.filling is not None)

    def use(self, slab):
        self.clock += 1
        self.last_use[slab] = self.clock

    def routed(self, layer, experts, now):
        self.now = now
        if self.cache == "learned":
            if self.layer is not None:
                self.distances.step_over(self.layer)
            self.distances.routed(layer, experts)
        self.layer = layer
        for expert in sorted(experts):
            self.use((layer, expert))
            self.tokens[layer, expert] = self.tokens.get((layer, expert), 0) + experts[expert]

    def arrived(self):
        slab, self.filling = self.filling, None
        if not self.of(slab):
            self.use(slab)
        self.resident[slab] = self.of(slab) + 1
        self.by_layer[slab[0]] += 1

    def evict(self, slab, reading):
        self.resident[slab] -= 1
        self.by_layer[slab[0]] -= 1
        if not self.resident[slab]:
            del self.resident[slab]
        self.locked += reading

    def layer_to_shrink(self, layer):
        """A layer that has its share shrinks; else the one farthest above its share."""
        if self.cache == "allocated":
            above = [n - share for n, share in zip(self.by_layer, self.shares)]
            most = max(range(self.n_expert_layers), key=lambda i: above[i])
            return layer if (above[layer] >= 0 and self.by_layer[layer]) or above[most] <= 0 else most
        if self.by_layer[layer] and self.by_layer[layer] >= self.layer_share:
            return layer
        most = max(range(self.n_expert_layers), key=lambda i: self.by_layer[i])
        above = self.by_layer[most] > max(self.layer_share, self.by_layer[layer])
        return most if above else layer

    def oldest(self, slabs):
        return min(slabs, key=lambda s: self.last_use[s], default=None)

    def victim_of_share(self, layer, candidates):
        shrinks = self.layer_to_shrink(layer)
        of_layer = [s for s in candidates if s[0] == shrinks]
        if of_layer and self.cache == "lfu":
            return min(of_layer, key=lambda s: (self.tokens.get(s, 0), self.last_use[s]))
        if of_layer and self.cache == "learned":
            now = self.distances.steps[shrinks] + (shrinks == self.layer)
            far = lambda s: self.distances.distance(self.distances.class_of(*s, now))
            return min(of_layer, key=lambda s: (-far(s), self.last_use[s]))
        if of_layer:
            return self.oldest(of_layer)
        for back in range(self.n_expert_layers):  # a demanded load gets a slot from any layer
            found = self.oldest([s for s in candidates if s[0] == (layer - back) % self.n_expert_layers])
            if found:
                return found
        return None

    def victim(self, layer, spared):
        candidates = [s for s in self.resident if s not in spared and s != self.filling]
        if not candidates:
            return None
        if self.cache == "belady":
            return min(candidates, key=lambda s: (-self.future.next_use(s, self.now), s))
        if self.budget == "uniform":
            return self.victim_of_share(layer, candidates)
        return self.oldest(candidates)


# ---- One replay ----


class Replay:
    def __init__(self, trace, machine, policy, share, steps, future):
        self.assigner, cache, budget = POLICIES[policy]
        self.trace, self.machine = trace, machine
        self.costs = Costs(machine, trace)
        self.steps, self.future = steps, future
        self.memory = Memory(trace, share, cache, budget, future)
        self.last_step = {}  # of qstar
        self.now = 0.0
        self.loads = []  # [(slab, segments)], waiting and under way, oldest first
        self.pinned, self.activated = set(), set()
        self.copy_left = self.cpu_left = 0.0  # seconds without contention
        self.call_left = 0.0  # of the CPU's call, which comes first and reads no memory
        self.slowdown = 1.0
        self.reading = False
        self.sums = dict.fromkeys(
            "segments hits on_device loaded copies link_busy cpu_busy device outside seconds tokens layers".split(), 0)
        self.decode = dict(self.sums)
        self.prefill_s, self.prefill_bound_s, self.prefill_tokens, self.step_s = 0.0, 0.0, 0, []
        self.decode_uses = {}  # {tokens: segments}

    # ---- Link and CPU ----

    def begin_copy(self):
        """Takes the oldest load whose segments are not all there, and frees slots: one for it, and the reserve."""
        m = self.memory
        while self.loads and m.of(self.loads[0][0]) >= self.loads[0][1]:
            self.loads.pop(0)
        if not self.loads:
            return
        slab = self.loads[0][0]
        self.pinned.add(slab)
        waiting = {s for s, _ in self.loads}
        spared = self.pinned | waiting | self.activated
        if m.n_free() == 0:
            assert m.keeps_loads(), "a cache that keeps nothing must have slots for a layer"
            victim = m.victim(slab[0], spared) or m.victim(slab[0], self.pinned | {slab})
            if victim:
                m.evict(victim, self.reading)
        if m.n_free() - m.locked <= 0:
            return
        m.filling, self.copy_left = slab, self.costs.load
        self.sums["copies"] += 1
        while m.keeps_loads() and m.n_free() < m.reserve:
            victim = m.victim(slab[0], spared)
            if not victim:
                break
            m.evict(victim, self.reading)

    def advance(self, until, arrival=None):
        """Moves time to `until`, or to the moment when the segments of `arrival` are there."""
        m = self.memory
        while True:
            if arrival and m.of(arrival[0]) >= arrival[1]:
                return
            if m.filling is None:
                self.begin_copy()
            copies, calls = m.filling is not None, self.call_left > 0
            computes = self.cpu_left > 0 and not calls
            link_pace = self.costs.load / self.costs.load_contended if computes else 1.0
            cpu_pace = 1 / self.slowdown if copies else 1.0
            ends = [until - self.now]
            ends += [self.copy_left / link_pace] if copies else []
            ends += [self.call_left] if calls else [self.cpu_left / cpu_pace] if computes else []
            dt = max(0.0, min(ends))
            assert dt < math.inf, "a load cannot get a slot"
            self.now += dt
            if copies:
                self.sums["link_busy"] += dt
                self.copy_left -= dt * link_pace
            if calls or computes:
                self.sums["cpu_busy"] += dt
            if calls:
                self.call_left -= dt
                self.call_left = 0.0 if self.call_left < 1e-12 else self.call_left
            if computes:
                self.cpu_left -= dt * cpu_pace
                self.cpu_left = 0.0 if self.cpu_left < 1e-12 else self.cpu_left
            if copies and self.copy_left < 1e-12:
                m.arrived()
            if self.now >= until - 1e-12:
                return

    def set_reading(self, reading):
        self.memory.locked = 0
        self.reading = reading

    # ---- A plan: {expert: (segments on the device, segments to load)}; the CPU computes the rest ----

    def plan(self, layer, experts, whole):
        segments, there = self.trace.n_segments, self.memory.of
        plan = {e: (there((layer, e)), segments - there((layer, e))) for e in experts}
        if self.assigner == "qstar":
            self.leave_to_cpu(layer, plan, whole)
        for expert in experts:
            self.last_step[layer, expert] = self.step
        return plan

    def leave_to_cpu(self, layer, plan, whole):
        """Loads F of the missing experts, the most recently active first, as far as half of the slots suffice."""
        missing = sorted((e for e, (_, load) in plan.items() if load),
                         key=lambda e: (-self.last_step.get((layer, e), -1), e))
        link, cpu = 1 / self.costs.load_contended, 1 / self.costs.cpu_contended(1)
        f, m = link / (link + cpu), len(missing)
        counts = {math.floor(m * f), min(m, math.floor(m * f) + 1)}
        n_loads = min(sorted(counts), key=lambda n: max(n * (1 - f), (m - n) * f))
        left = self.memory.n_slots // 2
        for i, expert in enumerate(missing):
            resident, load = plan[expert]
            if i < n_loads and load <= left:
                left -= load
            else:
                plan[expert] = (0 if whole else resident, 0)

    def waits_for_only_load(self, plan, experts):
        """With one expert to load: whether the device should compute all at once, after its arrival, or the load
        separately. By the planner's estimate of the link's end, which has contention."""
        loading = [e for e, (_, load) in plan.items() if load]
        if len(loading) != 1:
            return False
        (expert,) = loading
        c, call, n = self.costs, self.machine["device-call"], plan[loading[0]][1]
        cpu_s = cpu_contended_s = 0.0
        for e, (device, load) in plan.items():
            rest = self.trace.n_segments - device - load
            cpu_s += rest * c.cpu(experts[e])
            cpu_contended_s += rest * c.cpu_contended(experts[e])
        link_s, contended_s = n * c.load, n * c.load_contended
        if cpu_contended_s:
            cpu_end = self.machine["cpu-call"] + cpu_contended_s
            link_end = contended_s
            if contended_s > cpu_end:  # then the rest without contention
                link_end = cpu_end + (1 - cpu_end / contended_s) * link_s
        else:
            link_end = link_s
        resident_s = sum(device * c.device(experts[e]) for e, (device, _) in plan.items())
        load_s = c.device(experts[expert])
        at_once = link_end + call + resident_s + n * load_s
        begin = (call if resident_s else 0) + resident_s
        return at_once < self.end_of_calls(begin, link_end / n, n, load_s)

    def end_of_calls(self, now, step_s, n, load_s):
        """When the device has computed n loads, in each call what has arrived by then. At first the slots kept free can be
        copied into, as many more once the resident part is computed, and again after each call."""
        slots = self.memory.reserve
        slots_at = [0.0] * slots + [now] * slots if slots else [0.0] * n
        link, arrived, done = 0.0, [], 0
        while done < n:
            for begin in slots_at[len(arrived):n]:
                link = max(link, begin) + step_s
                arrived.append(link)
            now = max(now, arrived[done])
            there = sum(at <= now for at in arrived)
            now += self.machine["device-call"] + (there - done) * load_s
            done = there
            slots_at += [now] * slots
        return now

    # ---- A layer ----

    def device_call(self, seconds):
        self.sums["device"] += seconds
        self.advance(self.now + self.machine["device-call"] + seconds)

    def consume(self, slab):
        self.pinned.discard(slab)
        if self.large:
            self.activated.discard(slab)
        if not self.memory.keeps_loads():
            while self.memory.of(slab):
                self.memory.evict(slab, False)

    def start_cpu(self, plan, experts):
        rests = {e: self.trace.n_segments - sum(plan[e]) for e in plan}
        seconds = sum(n * self.costs.cpu(experts[e]) for e, n in rests.items())
        contended = sum(n * self.costs.cpu_contended(experts[e]) for e, n in rests.items())
        if seconds:
            self.call_left, self.cpu_left = self.machine["cpu-call"], seconds
            self.slowdown = max(1.0, contended / seconds)

    def compute_loads(self, layer, plan, experts):
        """The device computes in each call all that has arrived by then, of any expert."""
        done = {e: device for e, (device, _) in plan.items()}
        for expert, (device, load) in plan.items():
            while done[expert] < device + load:
                self.advance(math.inf, arrival=((layer, expert), done[expert] + 1))
                seconds = 0.0
                for e, (d, n) in plan.items():
                    there = max(done[e], min(self.memory.of((layer, e)), d + n))
                    seconds += (there - done[e]) * self.costs.device(experts[e])
                    done[e] = there
                self.set_reading(True)
                self.device_call(seconds)
                self.set_reading(False)
            if load:
                self.consume((layer, expert))

    def compute_at_once(self, layer, plan, experts):
        self.set_reading(False)
        for expert, (device, load) in plan.items():
            if load:
                self.advance(math.inf, arrival=((layer, expert), device + load))
        self.set_reading(True)
        self.device_call(sum((d + n) * self.costs.device(experts[e]) for e, (d, n) in plan.items()))
        self.set_reading(False)
        for expert, (_, load) in plan.items():
            if load:
                self.consume((layer, expert))

    def run_layer(self, layer, experts, tokens):
        segments = self.trace.n_segments
        self.activated = {(layer, e) for e in experts}
        self.large = 2 * len(experts) > self.trace.n_experts  # loads that are consumed may go before the layer is over
        self.memory.routed(layer, experts, self.step * self.memory.n_expert_layers + layer)
        self.set_reading(True)
        self.advance(self.now + len(experts) * PLAN_SHARE * self.machine["plan-expert"])
        plan = self.plan(layer, experts, tokens * segments > SPLIT_TOKENS)
        self.sums["segments"] += segments * len(plan)
        self.sums["hits"] += sum(self.memory.of((layer, e)) for e in plan)
        self.sums["on_device"] += sum(device for device, _ in plan.values())
        self.sums["loaded"] += sum(load for _, load in plan.values())
        self.loads = [((layer, e), device + load) for e, (device, load) in plan.items() if load]
        self.start_cpu(plan, experts)
        if self.waits_for_only_load(plan, experts):
            self.compute_at_once(layer, plan, experts)
        else:
            resident_s = sum(device * self.costs.device(experts[e]) for e, (device, _) in plan.items())
            if resident_s:
                self.device_call(resident_s)
            self.set_reading(False)
            self.compute_loads(layer, plan, experts)
        while self.cpu_left:
            self.advance(self.now + self.call_left + self.cpu_left)  # no copy is left to slow it down

    def prompt_bound(self, tokens, layers):
        """The longer of two times: the device computes everything, the link brings what is missing once."""
        device_s, link_s = self.trace.n_layers * self.costs.dense(tokens), 0.0
        for layer, experts in enumerate(layers):
            device_s += sum(self.trace.n_segments * self.costs.device(n) for n in experts.values())
            link_s += sum(self.trace.n_segments - self.memory.of((layer, e)) for e in experts) * self.costs.load
        return max(device_s, link_s)

    def run_step(self, decodes, tokens, layers):
        before, began = dict(self.sums), self.now
        self.prefill_bound_s += 0.0 if decodes else self.prompt_bound(tokens, layers)
        for layer in range(self.trace.n_layers):
            dense = self.costs.dense(tokens)
            self.sums["outside"] += dense
            self.advance(self.now + dense)
            if layer >= self.trace.first_layer:
                self.run_layer(layer - self.trace.first_layer, layers[layer - self.trace.first_layer], tokens)
        took = self.now - began
        if not decodes:
            self.prefill_s += took
            self.prefill_tokens += tokens
            return
        for key in self.sums:
            self.decode[key] += self.sums[key] - before[key]
        self.decode["seconds"] += took
        self.decode["tokens"] += tokens
        self.decode["layers"] += len(layers)
        self.step_s.append(took)
        for experts in layers:
            for n in experts.values():
                self.decode_uses[n] = self.decode_uses.get(n, 0) + self.trace.n_segments

    def run(self):
        for self.step, step in enumerate(self.steps):
            self.run_step(*step)
        return self.results()

    def results(self):
        d, steps = self.decode, np.sort(self.step_s)
        percentile = lambda share: steps[int(share * (len(steps) - 1) + 0.5)]
        seconds, segments = d["seconds"], d["segments"]
        return {
            "hits": d["hits"],
            "segments": segments,
            "decode_tokens": d["tokens"],
            "prefill_tokens": self.prefill_tokens,
            "decode_tokens_per_s": d["tokens"] / seconds,
            "prefill_tokens_per_s": self.prefill_tokens / self.prefill_s if self.prefill_s else None,
            "prefill_bound": self.prefill_bound_s / self.prefill_s if self.prefill_s else None,
            "tpot_p50_s": percentile(0.5),
            "tpot_p99_s": percentile(0.99),
            "hit_rate": d["hits"] / segments,
            "moved_bytes": self.sums["copies"] * self.trace.segment_bytes,
            "cpu_busy": d["cpu_busy"] / seconds,
            "link_busy": d["link_busy"] / seconds,
            "device_busy": (d["device"] + d["outside"]) / seconds,
            "on_device": d["on_device"] / segments,
            "loaded": d["loaded"] / segments,
            "layer_s": (seconds - d["outside"]) / d["layers"],
        }

    # ---- The bound ----

    def least_misses(self):
        """Belady's rule with bypass, over all layers, in decode steps; copies during prompts are free."""
        capacity = math.ceil(self.memory.n_slots / self.trace.n_segments)
        slabs = sorted({(layer, e) for layer in range(self.memory.n_expert_layers) for e in range(self.trace.n_experts)})
        n_layers, misses, cached, after_prompt = self.memory.n_expert_layers, 0, set(), False
        for step, (decodes, _, layers) in enumerate(self.steps):
            after_prompt |= not decodes
            if not decodes:
                continue
            if after_prompt:
                begin = step * n_layers - 1
                cached = set(sorted(slabs, key=lambda s: self.future.next_use(s, begin))[:capacity])
                after_prompt = False
            for layer, experts in enumerate(layers):
                used = {(layer, expert) for expert in experts}
                misses += len(used - cached)
                cached |= used
                if len(cached) > capacity:
                    now = step * n_layers + layer
                    cached = set(sorted(cached, key=lambda s: self.future.next_use(s, now))[:capacity])
        return misses

    def bound_s(self, misses):
        """The least time over every number C of segments that the CPU may compute."""
        c, m = self.costs, self.machine
        tokens = np.repeat(*zip(*sorted(self.decode_uses.items())))
        cpu = np.concatenate([[0], np.cumsum(c.cpu(tokens))])
        device = np.concatenate([[0], np.cumsum(c.device(tokens))])[::-1]  # all but the C with the most tokens
        n_cpu = np.arange(len(tokens) + 1)
        outside = self.decode["outside"] + self.decode["layers"] * min(m["device-call"], m["cpu-call"])
        misses = misses * self.trace.n_segments
        link = np.maximum(0, np.maximum(0, misses - n_cpu) * c.load - outside)
        link_pace = c.load / c.load_contended
        cpu_pace = max(c.cpu(w) / c.cpu_contended(w) for w in self.decode_uses)
        link_end, cpu_end = link / link_pace, cpu / cpu_pace
        both = np.where(link_end < cpu_end, link_end + cpu - link_end * cpu_pace, cpu_end + link - cpu_end * link_pace)
        both = np.minimum(both, link + cpu)
        return float(np.min(outside + np.maximum(both, device)))
