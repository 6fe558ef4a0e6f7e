// The panel that watches a deployment: one event stream feeds map, figures and processes. The stream is open only while
// somebody looks: the panel is shown and the tab is in front.
import { byId, el } from './dom.js';
import { openStream } from './api.js';
import { responseEvents } from './event_stream.js';
import { PlacementMap, PLACES } from './map_model.js';
import { MapCanvas } from './map_canvas.js';
import { Figures } from './figures.js';
import { Controls } from './controls.js';
import { Processes } from './processes.js';

const FIRST_WAIT_MS = 500, LONGEST_WAIT_MS = 15000; // before it connects again

export class Watch {
  #stream = null; // the AbortController of the one that is open
  #map = null;

  constructor(models) {
    this.models = models;
    this.node = byId('watch');
    document.addEventListener('visibilitychange', () => this.follow());
  }

  // ---- Elements ----

  render() {
    if (!this.canvas) this.#build();
    this.follow();
  }

  #build() {
    const canvas = el('canvas', { tabIndex: 0, role: 'application', 'aria-label': 'Placement map: a row a layer, a column an expert. Arrow keys choose a cell.',
                                  'aria-describedby': 'map-cell' });
    this.cell = el('p', { id: 'map-cell', class: 'map-cell', 'aria-live': 'polite' });
    this.state = el('p', { class: 'muted', role: 'status' });
    const box = el('div', { class: 'map-box' }, canvas);
    this.canvas = new MapCanvas(canvas, box, (cursor) => this.#showCell(cursor));
    this.counts = PLACES.map(() => el('span', { class: 'value' }));
    this.figures = new Figures();
    this.controls = new Controls(this.models);
    this.processes = new Processes();
    this.live = el('div', { hidden: true },
                   this.#modes(), box, this.cell, this.#legend(),
                   el('h3', {}, 'Figures'), this.figures.node, this.controls.node);
    this.node.replaceChildren(el('h2', {}, 'Experts'), this.state, this.live,
                              el('h3', { id: 'processes-title', hidden: true }, 'Processes'), this.processes.node);
  }

  #modes() {
    const mode = (label, byUse) => el('label', { class: 'choice' }, el('input', { type: 'radio', name: 'map-mode', checked: !byUse,
      on: { change: () => {
        this.canvas.byUse = byUse;
        this.canvas.draw();
      } } }), label);
    return el('fieldset', { class: 'modes' }, el('legend', { class: 'hidden' }, 'What a cell shows'),
              mode('Where it is', false), mode('How much it is used', true));
  }

  #legend() {
    const entries = PLACES.map((place, i) =>
      el('li', {}, el('span', { class: `swatch place-${i}`, 'aria-hidden': 'true' }), `${place.name} `, this.counts[i]));
    return el('ul', { class: 'legend', 'aria-label': 'Legend' }, ...entries,
              el('li', {}, el('span', { class: 'swatch use', 'aria-hidden': 'true' }), 'bar: used lately'),
              el('li', {}, el('span', { class: 'swatch chosen', 'aria-hidden': 'true' }), 'frame: latest step'));
  }

  #showCell(cursor) {
    this.cell.textContent = cursor && this.#map ? `${this.#map.describe(cursor.row, cursor.expert)}.`
                                                : 'Point at a cell, or move with the arrow keys, to read about an expert.';
  }

  // ---- The stream ----

  close() {
    this.follow();
  }

  /** Opens or closes the stream as the panel, the tab and the model want it. */
  follow() {
    const wanted = !this.node.hidden && !document.hidden && this.models.current;
    if (this.#stream && (!wanted || this.streamModel !== this.models.current.id)) {
      this.#stream.abort();
      this.#stream = null;
    }
    if (!wanted || this.#stream) return;
    this.#stream = new AbortController();
    this.streamModel = this.models.current.id;
    this.#run(this.streamModel, this.#stream.signal);
  }

  async #run(model, signal) {
    let wait = FIRST_WAIT_MS;
    this.state.textContent = 'Connecting...';
    while (!signal.aborted) {
      try {
        const response = await openStream(`./moed/events?model=${encodeURIComponent(model)}`, null, signal);
        wait = FIRST_WAIT_MS;
        for await (const event of responseEvents(response)) this.#take(event.name, JSON.parse(event.data));
        this.state.textContent = 'The stream ended; connecting again...';
      } catch (error) {
        if (signal.aborted) return;
        if ([401, 403, 404, 405, 501].includes(error.status)) return this.#giveUp(error);
        this.state.textContent = `Not connected: ${error.message}. Trying again...`;
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(2 * wait, LONGEST_WAIT_MS);
    }
  }

  #giveUp(error) {
    this.live.hidden = true;
    this.state.textContent = error.status === 404 || error.status === 501
      ? 'This server has no placement map. The chat works without it.'
      : `The placement map is not available: ${error.message}.`;
  }

  #take(name, data) {
    if (name === 'map') this.#takeMap(data);
    else if (name === 'change' && this.#map) this.#takeChange(data);
    else if (name === 'figures') this.#takeFigures(data);
    else if (name === 'processes') this.#takeProcesses(data);
    else if (name === 'failed') this.state.textContent = `No placement map: ${data.message}.`;
  }

  #takeMap(data) {
    this.#map = new PlacementMap(data);
    this.live.hidden = false;
    this.controls.showPolicy(data.policy);
    this.canvas.show(this.#map);
    this.#showCell(this.canvas.cursor);
    this.#showCounts();
  }

  #takeChange(data) {
    this.#map.apply(data);
    this.canvas.draw();
    if (this.canvas.cursor) this.#showCell(this.canvas.cursor);
    this.#showCounts();
  }

  #showCounts() {
    const { layers, experts, used, policy, step } = this.#map;
    this.#map.counts().forEach((count, i) => {
      this.counts[i].textContent = String(count);
    });
    this.state.textContent = `${layers.length} layers of ${experts} experts, ${used} used by a token` +
      `${policy ? `; policy ${policy}` : ''}${step ? `; step ${step}` : ''}`;
  }

  #takeFigures(data) {
    this.figures.show(data);
    this.controls.show(data);
  }

  #takeProcesses(data) {
    byId('processes-title').hidden = !data.length;
    this.processes.show(data);
  }
}
