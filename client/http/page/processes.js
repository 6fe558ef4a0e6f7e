// The deployment's processes: state, memory, restarts, and the last lines of each log.
import { el } from './dom.js';
import { bytes } from './format.js';

export class Processes {
  constructor() {
    this.body = el('tbody');
    const heads = ['Process', 'State', 'Memory', 'Restarts'].map((text, i) =>
      el('th', { scope: 'col', class: i > 1 ? 'right' : null }, text));
    this.node = el('div', { class: 'processes', hidden: true }, el('table', {}, el('thead', {}, el('tr', {}, ...heads)), this.body));
    this.open = new Set(); // whose log is shown
  }

  show(list) {
    const focused = document.activeElement?.dataset?.process;
    this.node.hidden = !list.length;
    this.body.replaceChildren(...list.flatMap((process) => this.#rows(process)));
    if (focused) this.body.querySelector(`[data-process="${CSS.escape(focused)}"]`)?.focus();
  }

  #rows(process) {
    const shown = this.open.has(process.name);
    const log = el('tr', { class: 'log', hidden: !shown },
                   el('td', { colSpan: 4 }, el('pre', { tabIndex: 0 }, (process.log ?? []).join('\n') || 'no lines')));
    const name = el('button', { type: 'button', class: 'quiet', 'aria-expanded': String(shown), 'data-process': process.name,
      title: process.pid ? `process id ${process.pid}` : '', on: { click: () => {
        const open = !this.open.delete(process.name);
        if (open) this.open.add(process.name);
        log.hidden = !open;
        name.setAttribute('aria-expanded', String(open));
      } } }, process.name);
    const state = el('td', { class: process.state === 'running' || process.state === 'ready' ? '' : 'warn' }, process.state);
    return [el('tr', {}, el('th', { scope: 'row' }, name), state,
               el('td', { class: 'right' }, process.rss_bytes ? bytes(process.rss_bytes) : ''),
               el('td', { class: 'right' }, String(process.restarts ?? 0))), log];
  }
}
