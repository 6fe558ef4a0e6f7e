// Conversations in this browser: IndexedDB, which all tabs with this page share. A write merges with what other tabs have
// written; of a deleted conversation {id, removed} stays, so that a tab that still shows it does not bring it back.
import { mergeInto } from './conversation.js';

const NAME = 'moed';
const TABLE = 'conversations';
const REMEMBER_MS = 30 * 24 * 3600 * 1000; // how long a deletion is known

/** Runs `use(table, done, guard)` in one transaction. Resolves to what was given to `done`, when all is written; `guard` wraps
 * the handlers of requests, whose exceptions would else be lost. */
function transact(database, mode, use) {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(TABLE, mode);
    let result;
    transaction.oncomplete = () => resolve(result);
    transaction.onabort = () => reject(transaction.error ?? new DOMException('the browser aborted it', 'AbortError'));
    const guard = (handler) => (event) => {
      try {
        handler(event.target.result);
      } catch (error) {
        reject(error);
        transaction.abort();
      }
    };
    use(transaction.objectStore(TABLE), (value) => {
      result = value;
    }, guard);
  });
}

export class Store {
  #database = null; // a promise

  #open() {
    this.#database ??= new Promise((resolve, reject) => {
      const request = indexedDB.open(NAME, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(TABLE, { keyPath: 'id' });
      request.onerror = () => reject(request.error);
      request.onsuccess = () => {
        const database = request.result;
        database.onclose = database.onversionchange = () => { // the site's data are being cleared
          database.close();
          this.#database = null;
        };
        resolve(database);
      };
    }).catch((error) => {
      this.#database = null;
      throw error;
    });
    return this.#database;
  }

  /** A connection that was closed is opened again. */
  async #run(mode, use) {
    const database = await this.#open();
    try {
      return await transact(database, mode, use);
    } catch (error) {
      if (error.name !== 'InvalidStateError' && error.name !== 'AbortError') throw error;
      this.#database = null;
      return transact(await this.#open(), mode, use);
    }
  }

  async all() {
    const records = await this.#run('readonly', (table, done, guard) => {
      table.getAll().onsuccess = guard(done);
    });
    const old = records.filter((record) => record.removed < Date.now() - REMEMBER_MS);
    if (old.length) {
      this.#run('readwrite', (table) => {
        for (const { id } of old) table.delete(id);
      }).catch(() => {});
    }
    return records.filter((record) => record.messages);
  }

  /** The conversation, or null. */
  get(id) {
    return this.#run('readonly', (table, done, guard) => {
      table.get(id).onsuccess = guard((record) => done(record?.messages ? record : null));
    });
  }

  /** Writes a conversation, and takes into it what other tabs have written. Returns whether that was anything; null: it was
   * deleted, and is not written unless `revive`. */
  put(conversation, revive = false) {
    return this.#run('readwrite', (table, done, guard) => {
      table.get(conversation.id).onsuccess = guard((record) => {
        if (record?.removed && !revive) return done(null);
        done(Boolean(record?.messages) && mergeInto(conversation, record));
        table.put(conversation);
      });
    });
  }

  remove(id) {
    return this.#run('readwrite', (table) => {
      table.put({ id, removed: Date.now() });
    });
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

export function removeSetting(name) {
  try {
    localStorage.removeItem(`moed.${name}`);
  } catch {
    // forbidden: there is none
  }
}

/** The names of the values whose names begin so. */
export function settingNames(beginning) {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(`moed.${beginning}`)).map((key) => key.slice('moed.'.length));
  } catch {
    return [];
  }
}
