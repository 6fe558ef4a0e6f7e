// The list of conversations: search, choose, delete, export, import.
import { byId, button, download, el, notify } from './dom.js';
import { exportJson, importJson } from './transfer.js';

const MAX_IMPORT = 64e6; // bytes

function dateOf(time) {
  const date = new Date(time);
  const today = new Date().toDateString() === date.toDateString();
  return today ? date.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }) : date.toLocaleDateString();
}

export class Sidebar {
  #shown = [];

  constructor(library, opened) {
    this.library = library;
    this.opened = opened;
    this.search = byId('search');
    library.onChange(() => this.render());
    this.search.addEventListener('input', () => this.render());
    byId('new-conversation').addEventListener('click', () => {
      library.openNew();
      opened();
    });
    byId('export-all').addEventListener('click', () => this.#export());
    byId('import').addEventListener('click', () => byId('import-file').click());
    byId('import-file').addEventListener('change', (event) => this.#import(event.target));
    byId('conversations').addEventListener('keydown', (event) => this.#move(event));
  }

  /** Makes the list anew if it is another one, so that the focus stays where it is. */
  render() {
    const found = this.library.sorted(this.search.value);
    const shown = [this.library.current, ...found.flatMap((c) => [c, c.title, dateOf(c.updated)])];
    if (shown.length === this.#shown.length && shown.every((part, i) => part === this.#shown[i])) return;
    this.#shown = shown;
    byId('conversations').replaceChildren(...found.map((conversation) => this.#item(conversation)));
    byId('no-conversations').hidden = found.length > 0 || !this.search.value;
  }

  #item(conversation) {
    const title = conversation.title || 'Conversation';
    const current = conversation === this.library.current;
    const open = el('button', { type: 'button', class: 'open', 'aria-current': current ? 'true' : null, on: { click: () => {
      this.library.open(conversation);
      this.opened();
    } } }, el('span', { class: 'title' }, title), el('span', { class: 'date' }, dateOf(conversation.updated)));
    const remove = button('Delete', () => this.#remove(conversation), { class: 'quiet', 'aria-label': `Delete ${title}` });
    return el('li', { class: current ? 'current' : '' }, open, remove);
  }

  #remove(conversation) {
    this.library.remove(conversation);
    this.search.focus();
    notify('The conversation is deleted.', { text: 'Undo', action: () => this.library.add([conversation]) });
  }

  /** Arrow keys move through the list. */
  #move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const all = [...byId('conversations').querySelectorAll('.open')];
    const next = all[all.indexOf(event.target) + step];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }

  #export() {
    const all = this.library.sorted();
    if (!all.length) return notify('There is no conversation to export.');
    download('moed-conversations.json', 'application/json', exportJson(all));
  }

  async #import(input) {
    const file = input.files[0];
    input.value = '';
    if (!file) return;
    try {
      if (file.size > MAX_IMPORT) throw new Error('the file is too large');
      const conversations = importJson(await file.text());
      this.library.add(conversations);
      notify(`Imported ${conversations.length} conversation${conversations.length === 1 ? '' : 's'}.`);
      this.opened();
    } catch (error) {
      notify(`${file.name} was not imported: ${error.message}.`);
    }
  }
}
