// The placement map's state: of each expert of each layer where it is, how much it was used lately, whether the latest step
// activated it. docs/http.md describes the events that it is made of.

export const PLACES = [
  { name: 'file only', color: '--place-file' },
  { name: 'host memory', color: '--place-host' },
  { name: 'on its way to the device', color: '--place-flight' },
  { name: 'partly on the device', color: '--place-part' },
  { name: 'wholly on the device', color: '--place-device' },
];

function decode(base64, length, what) {
  const text = atob(base64);
  if (text.length !== length) throw new Error(`the map's ${what} has ${text.length} cells, not ${length}`);
  return Uint8Array.from(text, (c) => c.charCodeAt(0));
}

export class PlacementMap {
  /** event: the data of the event `map`. Throws where it does not fit together. */
  constructor(event) {
    this.layers = event.layers;
    this.experts = event.experts;
    this.used = event.experts_used;
    this.policy = event.policy;
    this.step = event.step ?? 0; // null: no step yet
    const cells = this.layers.length * this.experts;
    this.place = decode(event.place, cells, 'place');
    this.use = decode(event.use, cells, 'use');
    this.chosen = decode(event.chosen, cells, 'chosen');
  }

  /** event: the data of the event `change`. A cell outside of the map is ignored. */
  apply(event) {
    this.step = event.step;
    for (const [index, place, use, chosen] of event.cells) {
      if (!(index >= 0 && index < this.place.length)) continue;
      this.place[index] = Math.min(place, PLACES.length - 1);
      this.use[index] = use;
      this.chosen[index] = chosen;
    }
  }

  /** How many experts are in each place. */
  counts() {
    const counts = new Array(PLACES.length).fill(0);
    for (const place of this.place) counts[place]++;
    return counts;
  }

  /** The share of recent steps that activated a cell: `use` is on a square-root scale. */
  share(index) {
    return (this.use[index] / 255) ** 2;
  }

  /** A cell in words. */
  describe(row, expert) {
    const index = row * this.experts + expert;
    const share = this.share(index);
    const use = share === 0 ? 'not used lately' : `in ${share < 0.095 ? (share * 100).toFixed(1) : Math.round(share * 100)} % of recent steps`;
    return `Layer ${this.layers[row]}, expert ${expert}: ${PLACES[this.place[index]].name}, ${use}` +
      (this.chosen[index] ? ', chosen by the latest step' : '');
  }
}
