// The figures beside the placement map: rows of a table, some with a bar. A figure that this deployment has never had is left
// out.
import { el } from './dom.js';
import { bytes, percent, scaled, seconds } from './format.js';

function layerTime(ns) {
  return ns < 1e6 ? `${Math.round(ns / 1e3)} \u00b5s` : ns < 1e9 ? `${(ns / 1e6).toFixed(1)} ms` : seconds(ns / 1e9);
}

/** [label, value of the figures, how it is written, whether it is a share that gets a bar] */
const ROWS = [
  ['Tokens per second', (f) => f.tokens_per_second, (v) => v.toFixed(1), false],
  ['Found on the device', (f) => f.hit_rate, percent, true],
  ['Prefetches used', (f) => f.prefetch_precision, percent, true],
  ['Link busy', (f) => f.link_busy, percent, true],
  ['Link', (f) => f.link_bytes_per_second, (v) => scaled(v, 'B/s'), false],
  ['CPU busy', (f) => f.cpu_busy, percent, true],
  ['Device busy', (f) => f.device_busy, percent, true],
  ['A layer took', (f) => f.layer_ns, layerTime, false],
  ['A layer was planned', (f) => f.layer_planned_ns, layerTime, false],
  ['Experts on the device', (f) => f.device_cache_bytes, bytes, false],
  ['Conversations, host', (f) => f.kv_bytes?.host, bytes, false],
  ['Conversations, device', (f) => f.kv_bytes?.device, bytes, false],
  ['Requests running', (f) => f.requests_running, String, false],
  ['Requests waiting', (f) => f.requests_waiting, String, false],
];

export class Figures {
  #rows;

  constructor() {
    this.#rows = ROWS.map(([label]) => {
      const bar = el('span', { class: 'bar-fill' });
      const value = el('span', { class: 'value' });
      const track = el('span', { class: 'bar-track', 'aria-hidden': 'true' }, bar);
      return { node: el('div', { hidden: true }, el('dt', {}, label), el('dd', {}, track, value)), bar, track, value };
    });
    this.node = el('dl', { class: 'figures-list' }, ...this.#rows.map((row) => row.node));
  }

  show(figures) {
    ROWS.forEach(([, read, write, isShare], i) => {
      const row = this.#rows[i];
      const value = read(figures);
      const known = value !== null && value !== undefined;
      if (known) row.node.hidden = false; // and stays: a dash stands for a figure without events
      row.value.textContent = known ? write(value) : '\u2013';
      row.track.hidden = !isShare;
      row.bar.style.width = isShare && known ? `${Math.max(0, Math.min(1, value)) * 100}%` : '0';
    });
  }
}
