// The placement map as a picture: a row a layer, a column an expert. The pointer and the arrow keys choose a cell.
import { PLACES } from './map_model.js';

const GUTTER = 26; // pixels for the layers' numbers
const HEAD = 16; // for the experts' numbers
const SMALLEST = 4, LARGEST = 22; // a cell's sides
const ROW = 14, TALLEST = 520; // a row where there is space; all rows
const LABEL_SPACE = 30; // pixels between two numbers of experts

/** The least step of 1, 2, 5, 10, ... cells that leaves `pixels` between two labels. */
export function labelStep(cell, pixels) {
  for (let power = 1; ; power *= 10) {
    for (const digit of [1, 2, 5]) if (digit * power * cell >= pixels) return digit * power;
  }
}

export class MapCanvas {
  #frame = 0;
  #colors = null;

  /** box: the element around the canvas, whose width it fills. picked: called with {row, expert}, or with null where the
   * pointer left. */
  constructor(canvas, box, picked) {
    this.canvas = canvas;
    this.box = box;
    this.picked = picked;
    this.map = null;
    this.cursor = null;
    this.byUse = false;
    canvas.addEventListener('pointermove', (event) => this.#point(event));
    canvas.addEventListener('pointerdown', (event) => this.#point(event));
    canvas.addEventListener('pointerleave', () => this.#pick(null));
    canvas.addEventListener('keydown', (event) => this.#key(event));
    new ResizeObserver(() => this.draw()).observe(box);
    document.addEventListener('themechange', () => this.#forgetColors());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#forgetColors());
  }

  #forgetColors() {
    this.#colors = null;
    this.draw();
  }

  show(map) {
    if (this.cursor && map && (this.cursor.row >= map.layers.length || this.cursor.expert >= map.experts)) this.cursor = null;
    this.map = map;
    this.draw();
  }

  #cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const expert = Math.floor((event.clientX - box.left - GUTTER) / this.width);
    const row = Math.floor((event.clientY - box.top - HEAD) / this.height);
    const inside = this.map && row >= 0 && row < this.map.layers.length && expert >= 0 && expert < this.map.experts;
    return inside ? { row, expert } : null;
  }

  #point(event) {
    this.#pick(this.#cellAt(event));
  }

  #pick(cursor) {
    if (cursor?.row === this.cursor?.row && cursor?.expert === this.cursor?.expert) return;
    this.cursor = cursor;
    this.picked(cursor);
    this.draw();
  }

  #key(event) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const step = steps[event.key];
    if (!step || !this.map) return;
    event.preventDefault();
    const { row, expert } = this.cursor ?? { row: 0, expert: 0 };
    const clamp = (value, limit) => Math.max(0, Math.min(limit - 1, value));
    const by = this.cursor ? step : [0, 0];
    this.#pick({ row: clamp(row + by[0], this.map.layers.length), expert: clamp(expert + by[1], this.map.experts) });
  }

  /** Draws at the next frame. */
  draw() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.map && this.canvas.isConnected) this.#paint();
    });
  }

  #readColors() {
    const style = getComputedStyle(this.canvas);
    const value = (name) => style.getPropertyValue(name).trim();
    return { places: PLACES.map((place) => value(place.color)), empty: value('--surface'), use: value('--use'),
             chosen: value('--chosen'), text: value('--muted'), cursor: value('--accent') };
  }

  /** Sizes the canvas for the map. Returns its drawing context, in CSS pixels. */
  #fit() {
    const width = this.box.clientWidth - GUTTER - 1;
    const between = (value, least, most) => Math.max(least, Math.min(most, Math.floor(value)));
    this.width = between(width / this.map.experts, SMALLEST, LARGEST);
    this.height = between(TALLEST / this.map.layers.length, SMALLEST, Math.max(this.width, ROW));
    const size = [GUTTER + this.width * this.map.experts + 1, HEAD + this.height * this.map.layers.length + 1];
    const scale = window.devicePixelRatio || 1;
    const [w, h] = size.map((pixels) => Math.round(pixels * scale));
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.canvas.style.width = `${size[0]}px`;
      this.canvas.style.height = `${size[1]}px`;
    }
    const context = this.canvas.getContext('2d');
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, size[0], size[1]);
    return context;
  }

  #paint() {
    const c = this.#fit();
    this.#colors ??= this.#readColors();
    this.#paintLabels(c);
    for (let row = 0; row < this.map.layers.length; row++) {
      for (let expert = 0; expert < this.map.experts; expert++) this.#paintCell(c, row, expert);
    }
    if (this.cursor) this.#outline(c, this.cursor.row, this.cursor.expert, this.#colors.cursor, 2);
  }

  #paintLabels(c) {
    c.fillStyle = this.#colors.text;
    c.font = '10px ui-monospace, monospace';
    c.textBaseline = 'middle';
    c.textAlign = 'left';
    for (let expert = 0; expert < this.map.experts; expert += labelStep(this.width, LABEL_SPACE)) {
      c.fillText(String(expert), GUTTER + expert * this.width, HEAD / 2);
    }
    c.textAlign = 'right';
    for (let row = 0; row < this.map.layers.length; row += labelStep(this.height, 12)) {
      c.fillText(String(this.map.layers[row]), GUTTER - 5, HEAD + (row + 0.5) * this.height);
    }
  }

  /** Where a cell stands: [x, y, width, height], a gap to the next one left out. */
  #place(row, expert) {
    const gap = this.width >= 6 && this.height >= 6 ? 1 : 0;
    return [GUTTER + expert * this.width, HEAD + row * this.height, this.width - gap, this.height - gap];
  }

  /** The place as the cell's colour, the use as a bar that grows within; the smallest cells show one of the two. */
  #paintCell(c, row, expert) {
    const { map } = this;
    const index = row * map.experts + expert;
    const [x, y, width, height] = this.#place(row, expert);
    const use = map.use[index] / 255;
    c.fillStyle = this.byUse ? this.#colors.empty : this.#colors.places[map.place[index]];
    c.fillRect(x, y, width, height);
    c.fillStyle = this.#colors.use;
    if (this.byUse) {
      c.globalAlpha = use;
      c.fillRect(x, y, width, height);
      c.globalAlpha = 1;
    } else if (use > 0 && width >= 5 && height >= 8) {
      const thick = Math.max(1, Math.round(width / 4)), long = Math.max(1, Math.round((height - 2) * use));
      c.fillRect(x + Math.floor((width - thick) / 2), y + height - 1 - long, thick, long);
    }
    if (map.chosen[index]) this.#outline(c, row, expert, this.#colors.chosen, width >= 9 ? 2 : 1);
  }

  #outline(c, row, expert, color, thick) {
    const [x, y, width, height] = this.#place(row, expert);
    c.strokeStyle = color;
    c.lineWidth = thick;
    c.strokeRect(x + thick / 2, y + thick / 2, width - thick, height - thick);
  }
}
