// The models of this server, and the one that is asked.
import { byId, el } from './dom.js';
import { getJson } from './api.js';
import { readSetting, writeSetting } from './store.js';

const AGAIN_MS = 3000; // while no model answers

export class Models {
  #listeners = [];
  #keyRefused = false;
  all = [];
  current = null;
  reason = '';

  constructor() {
    byId('model').addEventListener('change', (event) => {
      writeSetting('model', event.target.value);
      this.#choose();
    });
  }

  onChange(listener) {
    this.#listeners.push(listener);
  }

  async load() {
    try {
      this.all = (await getJson('./v1/models')).data;
      this.reason = '';
    } catch (error) {
      if (error.status === 401 || error.status === 403) this.#keyRefused = true;
      this.reason = `${error.message[0].toUpperCase()}${error.message.slice(1)}.`;
    }
    byId('model').replaceChildren(...this.all.map((model) => el('option', { value: model.id }, model.id)));
    byId('model').hidden = !this.all.length;
    byId('model').value = readSetting('model', '');
    // A server that wants a key is asked again only when the page is loaded again: each try opens a dialog.
    if (!this.all.length && !this.#keyRefused) setTimeout(() => this.load(), AGAIN_MS);
    this.#choose();
  }

  #choose() {
    const select = byId('model');
    if (select.selectedIndex < 0) select.selectedIndex = 0;
    this.current = this.all.find((model) => model.id === select.value) ?? null;
    for (const listener of this.#listeners) listener();
  }
}
