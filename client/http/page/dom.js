// Elements as calls. Text becomes text nodes, so nothing here can make markup of a string.

/** Makes an element. properties: DOM properties; `class`, `aria-*`, `data-*`, `role`, `for` are attributes; `on` maps
 * events to listeners. children: nodes, strings, or null. */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name === 'on') {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === 'class' || name === 'role' || name === 'for' || name.includes('-')) {
      node.setAttribute(name, value);
    } else {
      node[name] = value;
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** A button with a visible text, and a longer name where the text alone is not clear. */
export function button(text, action, properties = {}) {
  return el('button', { type: 'button', on: { click: action }, ...properties }, text);
}

export function byId(id) {
  return document.getElementById(id);
}

/** Shows a text in an element. One that has only grown is added to, so that a selection in it stays. */
export function setText(node, text) {
  const shown = node.firstChild?.data ?? '';
  if (text === shown) return;
  if (shown && text.startsWith(shown)) node.firstChild.appendData(text.slice(shown.length));
  else node.textContent = text;
}

/** Says a text to screen readers. */
export function announce(text) {
  byId('announcer').textContent = text;
}

/** A short notice at the edge of the window, with an action if one is given; lasting: until it is closed. */
export function notify(message, { text = '', action = null, lasting = false } = {}) {
  const notice = el('div', { class: 'notice' }, el('span', {}, message));
  const close = () => notice.remove();
  if (action) {
    notice.append(button(text, () => {
      close();
      action();
    }));
  }
  notice.append(button('Close', close, { class: 'quiet' }));
  byId('notices').append(notice);
  if (!lasting) setTimeout(close, 10000);
}

/** Offers a text as a file. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
