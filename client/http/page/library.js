// The conversations: all of them, which one is shown, and their way into the store and to the other tabs.
import { mergeInto, newConversation, matches } from './conversation.js';
import { notify } from './dom.js';
import { readSetting, removeSetting, settingNames, writeSetting } from './store.js';

const PARTIAL = 'partial.'; // before a message's id

export class Library {
  #all = new Map();
  #listeners = [];
  #removed = new Set(); // ids
  #reported = false; // that a write failed
  keeps = true; // false: this browser keeps nothing

  constructor(store, tabs) {
    this.store = store;
    this.tabs = tabs;
    this.current = null;
    tabs.on('saved', (id) => this.takeSaved(id));
    tabs.on('removed', (id) => this.#takeRemoved(id));
  }

  async load() {
    const kept = await this.store.all().catch(() => {
      this.keeps = false;
      return [];
    });
    for (const conversation of kept) this.#all.set(conversation.id, conversation);
    this.takePartials();
    this.current = this.#all.get(readSetting('current', '')) ?? this.sorted()[0] ?? this.#fresh();
  }

  #fresh() {
    return newConversation({ ...readSetting('defaults', {}) });
  }

  /** listener(conversation): the one with new messages of another tab, or nothing. */
  onChange(listener) {
    this.#listeners.push(listener);
  }

  #changed(conversation = null) {
    for (const listener of this.#listeners) listener(conversation);
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

  /** Does not keep a conversation that was removed. */
  async save(conversation, revive = false) {
    if (this.#removed.has(conversation.id)) return;
    if (!Object.keys(conversation.messages).length) return;
    const known = this.#all.has(conversation.id);
    this.#all.set(conversation.id, conversation);
    if (!known) writeSetting('current', conversation.id);
    this.#changed();
    await this.keep(conversation, revive);
  }

  /** Writes a conversation as it is now. Never fails: a notice reports a write that fails, unless the write before
   * it failed too. */
  async keep(conversation, revive = false) {
    if (this.#removed.has(conversation.id)) return;
    try {
      const news = await this.store.put(conversation, revive);
      this.keeps = true;
      this.#reported = false;
      if (news === null) return this.#takeRemoved(conversation.id);
      this.tabs.send('saved', conversation.id);
      if (news) this.#changed(conversation);
    } catch (error) {
      this.keeps = false;
      if (!this.#reported) notify(`This conversation is not being saved: ${error.message || error.name}`, { lasting: true });
      this.#reported = true;
    }
  }

  /** Keeps an answer as far as it has come when the page is closed. A database would be too slow; another tab or the
   * next page that loads writes it there. */
  keepPartial(conversation, message) {
    writeSetting(PARTIAL + message.id, { conversation: conversation.id, message });
  }

  async takePartials() {
    await Promise.all(settingNames(PARTIAL).map((name) => this.#takePartial(name)));
  }

  async #takePartial(name) {
    const { conversation: id, message } = readSetting(name, {});
    const conversation = this.#all.get(id);
    if (conversation && message && mergeInto(conversation, { messages: { [message.id]: message } })) {
      await this.keep(conversation);
    }
    if (this.keeps) removeSetting(name);
  }

  remove(conversation) {
    this.#forget(conversation.id);
    this.store.remove(conversation.id).then(() => this.tabs.send('removed', conversation.id), (error) => {
      notify(`The conversation is not deleted from this browser: ${error.message || error.name}`);
    });
  }

  #forget(id, next = null) {
    this.#removed.add(id);
    this.#all.delete(id);
    if (this.current.id === id) this.open(next ?? this.sorted()[0] ?? this.#fresh());
    else this.#changed();
  }

  add(conversations) {
    for (const conversation of conversations) {
      this.#removed.delete(conversation.id);
      this.save(conversation, true);
    }
    if (conversations.length) this.open(conversations[0]);
  }

  // ---- Other tabs ----

  /** Reads what another tab has written. */
  async takeSaved(id) {
    const wasRemoved = this.#removed.has(id);
    const kept = await this.store.get(id).catch(() => null);
    if (!kept || (!wasRemoved && this.#removed.has(id))) return; // it was removed here while the store was read
    this.#removed.delete(id);
    const ours = this.#all.get(id);
    if (!ours) this.#all.set(id, kept);
    else mergeInto(ours, kept);
    this.#changed(ours ?? null);
  }

  #takeRemoved(id) {
    const ours = this.#all.get(id);
    if (!ours) return;
    const shown = this.current === ours;
    this.#forget(id, this.#fresh()); // a question that is being typed does not get into another conversation
    if (shown) notify('This conversation was deleted in another tab.', { text: 'Undo', action: () => this.add([ours]) });
  }
}
