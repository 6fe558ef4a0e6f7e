// The dialog that asks for a key. One question at a time: requests that fail together share it.
import { byId } from './dom.js';

let pending = null;

/** True for what an HTTP header can carry as a key: ASCII characters. */
export function isKey(text) {
  return /^[\x20-\x7e]+$/.test(text);
}

function show(title, text, refused) {
  const dialog = byId('key-dialog');
  const input = byId('key-input');
  byId('key-title').textContent = title;
  byId('key-text').textContent = refused ? `${text} The one given was refused.` : text;
  input.value = '';
  dialog.returnValue = '';
  byId('key-ok').onclick = (event) => {
    const key = input.value.trim();
    if (!key || isKey(key)) return;
    event.preventDefault();
    byId('key-text').textContent = 'A key has plain characters only, no typographic quotes for example.';
  };
  byId('key-cancel').onclick = () => dialog.close();
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      const key = dialog.returnValue === 'ok' ? input.value.trim() : '';
      input.value = '';
      resolve(key || null);
    }, { once: true });
  });
}

/** Resolves to the key, or null if none was given. */
export async function askForKey(title, text, refused) {
  pending ??= show(title, text, refused).finally(() => {
    pending = null;
  });
  return pending;
}
