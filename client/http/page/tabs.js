// The messages between the tabs with this page. With them each tab shows what is in the store, and the answers that arrive
// in other tabs.
//
//   saved, removed (id)      a conversation was written, or deleted
//   running (id, message)    this answer is arriving in the sender
//   ended (id)               it is not any more
//   who                      asks all tabs for what is running
//   stop (id)                asks for an answer's end

const ASK_MS = 3000; // a tab that fails sends no 'ended': while an answer arrives elsewhere, its tab is asked
const SILENT = 3; // times without a reply after which it is gone

export class Tabs {
  #channel = null;
  #listeners = new Map();
  #elsewhere = new Map(); // conversation's id -> {message, asked}
  #timer = 0;

  /** here(): [[conversation's id, message's id]] of the answers that arrive in this tab. */
  connect(here) {
    if (typeof BroadcastChannel === 'undefined') return;
    this.#channel = new BroadcastChannel('moed');
    this.#channel.onmessage = ({ data }) => {
      if (data.type === 'who') for (const [id, message] of here()) this.send('running', id, message);
      else if (data.type === 'running') this.#takeRunning(data);
      else if (data.type === 'ended') this.#elsewhere.delete(data.id);
      this.#listeners.get(data.type)?.(data.id);
    };
    this.send('who');
  }

  on(type, listener) {
    this.#listeners.set(type, listener);
  }

  send(type, id = '', message = '') {
    this.#channel?.postMessage({ type, id, message });
  }

  /** The id of the message that arrives in another tab, or null. */
  elsewhere(id) {
    return this.#elsewhere.get(id)?.message ?? null;
  }

  #takeRunning({ id, message }) {
    this.#elsewhere.set(id, { message, asked: 0 });
    this.#timer ||= setInterval(() => this.#ask(), ASK_MS);
  }

  #ask() {
    for (const [id, entry] of this.#elsewhere) {
      if (++entry.asked <= SILENT) continue;
      this.#elsewhere.delete(id);
      this.#listeners.get('ended')?.(id);
    }
    if (this.#elsewhere.size) return this.send('who');
    clearInterval(this.#timer);
    this.#timer = 0;
  }
}
