// The deployment's processes: state, memory, restarts, and the last lines of each log. Rows stay the same elements while
// their values change, so that a click or the focus is never lost.
import { el } from './dom.js';
import { bytes } from './format.js';

const GOOD = new Set(['running', 'ready']);

class ProcessRow {
  constructor(name) {
    this.name = el('button', { type: 'button', class: 'quiet', 'aria-expanded': 'false', on: { click: () => this.#toggle() } }, name);
    this.state = el('td');
    this.memory = el('td', { class: 'right' });
    this.restarts = el('td', { class: 'right' });
    this.text = el('pre', { tabIndex: 0, 'aria-label': `Log of ${name}` });
    this.log = el('tr', { class: 'log', hidden: true }, el('td', { colSpan: 4 }, this.text));
    this.nodes = [el('tr', {}, el('th', { scope: 'row' }, this.name), this.state, this.memory, this.restarts), this.log];
  }

  #toggle() {
    this.log.hidden = !this.log.hidden;
    this.name.setAttribute('aria-expanded', String(!this.log.hidden));
  }

  show(process) {
    this.name.title = process.pid ? `process id ${process.pid}` : '';
    this.state.textContent = process.state;
    this.state.className = GOOD.has(process.state) ? '' : 'warn';
    this.memory.textContent = process.rss_bytes ? bytes(process.rss_bytes) : '';
    this.restarts.textContent = String(process.restarts ?? '');
    const log = (process.log ?? []).join('\n') || 'no lines';
    if (this.text.textContent !== log) this.text.textContent = log;
  }
}

export class Processes {
  #rows = new Map();

  constructor() {
    this.body = el('tbody');
    const heads = ['Process', 'State', 'Memory', 'Restarts'].map((text, i) =>
      el('th', { scope: 'col', class: i > 1 ? 'right' : null }, text));
    this.node = el('div', { class: 'processes', hidden: true }, el('table', {}, el('thead', {}, el('tr', {}, ...heads)), this.body));
  }

  show(list) {
    this.node.hidden = !list.length;
    const names = new Set(list.map((process) => process.name));
    for (const [name, row] of this.#rows) {
      if (names.has(name)) continue;
      row.nodes.forEach((node) => node.remove());
      this.#rows.delete(name);
    }
    for (const process of list) this.#row(process.name).show(process);
  }

  #row(name) {
    let row = this.#rows.get(name);
    if (!row) {
      row = new ProcessRow(name);
      this.#rows.set(name, row);
      this.body.append(...row.nodes);
    }
    return row;
  }
}
