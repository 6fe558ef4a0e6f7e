// Copying a text. A page that came over plain HTTP from another machine has no clipboard interface: there the browser's
// older command copies a selection.
import { announce } from './dom.js';

function copySelected(text) {
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'hidden';
  document.body.append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  return copied;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text);
  }
}

/** Copies a text and says so on the button. */
export async function copyWithButton(button, text) {
  const name = button.dataset.name ?? button.textContent;
  button.dataset.name = name;
  const copied = await copyText(text);
  button.focus();
  button.textContent = copied ? 'Copied' : 'Not copied';
  announce(button.textContent);
  setTimeout(() => {
    button.textContent = name;
  }, 1500);
}
