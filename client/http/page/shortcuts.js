// The page's key combinations, and which key events belong to the writing of a text.

const MAC = /Mac|iPhone|iPad/.test(globalThis.navigator?.platform ?? '');
// a letter that Alt has not made into another character; scripts other than Latin have no plain letter on that key
const PLAIN = /^(?:[A-Za-z]|(?=\p{L})[^\p{Script=Latin}\p{Script=Common}])$/u;

/** The code of the key ('KeyN') if the event is a combination of this page, else null. On a Mac Option alone writes
 * characters; there it is Ctrl+Option. */
export function shortcutOf(event, mac = MAC) {
  if (!event.altKey || event.metaKey || event.ctrlKey !== mac) return null;
  return mac || PLAIN.test(event.key) ? event.code : null;
}

export function shortcutName(letter, mac = MAC) {
  return `${mac ? 'Ctrl+Option' : 'Alt'}+${letter}`;
}

/** True if an input method takes the key. Safari reports the Enter that ends a composition after it, as key 229. */
export function isComposing(event) {
  return event.isComposing || event.keyCode === 229;
}
