// The models of this server, and the one that is asked. The list is read again whenever it may be another one: the tab comes to
// the front, the select gets the focus, a question found no model or no server.
import { byId, el } from './dom.js';
import { getJson } from './api.js';
import { readSetting, writeSetting } from './store.js';

const AGAIN_MS = 3000; // after a try that failed, or found no model

function labelOf(model) {
  const status = model.status?.value ?? 'loaded';
  return status === 'loaded' ? model.id : `${model.id} (${status})`;
}

export class Models {
  #listeners = [];
  #loading = null;
  #timer = 0;
  #labels = '';
  #reported = '';
  all = [];
  current = null;
  reason = ''; // why the list could not be read
  needsKey = false; // the server wants a key, and none was given

  constructor() {
    const select = byId('model');
    select.addEventListener('change', () => {
      writeSetting('model', select.value);
      this.#choose(select.value);
    });
    // each try without a key opens a dialog
    const again = () => {
      if (!document.hidden && !this.needsKey) this.load();
    };
    select.addEventListener('focus', again);
    document.addEventListener('visibilitychange', again);
  }

  onChange(listener) {
    this.#listeners.push(listener);
  }

  load() {
    this.#loading ??= this.#load().finally(() => {
      this.#loading = null;
    });
    return this.#loading;
  }

  async #load() {
    clearTimeout(this.#timer);
    try {
      this.all = (await getJson('./v1/models')).data;
      this.reason = '';
      this.needsKey = false;
    } catch (error) {
      this.needsKey = error.status === 401 || error.status === 403;
      this.reason = `${error.message[0].toUpperCase()}${error.message.slice(1)}.`;
    }
    if (!this.needsKey && (this.reason || !this.all.length)) this.#timer = setTimeout(() => this.load(), AGAIN_MS);
    this.#choose(this.current?.id ?? readSetting('model', ''));
  }

  #choose(id) {
    const select = byId('model');
    const labels = JSON.stringify(this.all.map(labelOf));
    if (labels !== this.#labels) { // else an opened list stays open
      select.replaceChildren(...this.all.map((model) => el('option', { value: model.id }, labelOf(model))));
      this.#labels = labels;
    }
    select.hidden = !this.all.length;
    this.current = this.all.find((model) => model.id === id) ?? this.all[0] ?? null;
    if (this.current) select.value = this.current.id;
    const report = JSON.stringify([this.all, this.current, this.reason, this.needsKey]);
    if (report === this.#reported) return;
    this.#reported = report;
    for (const listener of this.#listeners) listener();
  }
}
