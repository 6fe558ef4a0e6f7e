// Conversations in this browser: IndexedDB. Where a browser forbids it, they live as long as the page.

const NAME = 'moed';
const TABLE = 'conversations';

function promise(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

class BrowserStore {
  constructor(database) {
    this.database = database;
    this.keeps = true;
  }

  #table(mode) {
    return this.database.transaction(TABLE, mode).objectStore(TABLE);
  }

  all() {
    return promise(this.#table('readonly').getAll());
  }

  put(conversation) {
    return promise(this.#table('readwrite').put(conversation));
  }

  remove(id) {
    return promise(this.#table('readwrite').delete(id));
  }
}

class MemoryStore {
  keeps = false;

  async all() {
    return [];
  }

  async put() {}

  async remove() {}
}

export async function openStore() {
  try {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(TABLE, { keyPath: 'id' });
    return new BrowserStore(await promise(request));
  } catch {
    return new MemoryStore();
  }
}

/** A small value in localStorage; `fallback` where there is none. */
export function readSetting(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`moed.${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function writeSetting(name, value) {
  try {
    localStorage.setItem(`moed.${name}`, JSON.stringify(value));
  } catch {
    // full or forbidden: the value lasts as long as the page
  }
}
