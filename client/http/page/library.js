// The conversations: all of them, which one is shown, and their way into the store.
import { newConversation, matches } from './conversation.js';
import { readSetting, writeSetting } from './store.js';

export class Library {
  #all = new Map();
  #listeners = [];
  #removed = new Set(); // ids

  constructor(store) {
    this.store = store;
    this.current = null;
  }

  async load() {
    for (const conversation of await this.store.all()) this.#all.set(conversation.id, conversation);
    this.current = this.#all.get(readSetting('current', '')) ?? this.sorted()[0] ?? this.#fresh();
  }

  #fresh() {
    return newConversation({ ...readSetting('defaults', {}) });
  }

  onChange(listener) {
    this.#listeners.push(listener);
  }

  #changed() {
    for (const listener of this.#listeners) listener();
  }

  /** The latest first. An empty one is not kept. */
  sorted(query = '') {
    return [...this.#all.values()].filter((c) => matches(c, query)).sort((a, b) => b.updated - a.updated);
  }

  get(id) {
    return this.#all.get(id);
  }

  open(conversation) {
    this.current = conversation;
    writeSetting('current', conversation.id);
    this.#changed();
  }

  openNew() {
    this.open(this.#fresh());
  }

  /** A conversation that was removed meanwhile is not kept. */
  save(conversation) {
    if (this.#removed.has(conversation.id)) return;
    if (!Object.keys(conversation.messages).length) return;
    const known = this.#all.has(conversation.id);
    this.#all.set(conversation.id, conversation);
    this.store.put(conversation).catch(() => {
      this.store.keeps = false;
    });
    if (!known) writeSetting('current', conversation.id);
    this.#changed();
  }

  remove(conversation) {
    this.#removed.add(conversation.id);
    this.#all.delete(conversation.id);
    this.store.remove(conversation.id).catch(() => {});
    if (this.current === conversation) this.open(this.sorted()[0] ?? this.#fresh());
    else this.#changed();
  }

  add(conversations) {
    for (const conversation of conversations) {
      this.#removed.delete(conversation.id);
      this.save(conversation);
    }
    if (conversations.length) this.open(conversations[0]);
  }
}
