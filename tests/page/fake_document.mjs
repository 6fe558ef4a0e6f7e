// As much of a document as the Markdown builder uses. Text and attributes are kept apart from elements, as in a browser,
// and anything that would make markup of a string is an error.
class Node {
  constructor() {
    this.parent = null;
    this.childNodes = [];
  }

  append(...children) {
    for (const child of children) {
      const node = typeof child === 'string' ? new Text(child) : child;
      node.parent = this;
      this.childNodes.push(node);
    }
  }

  get lastChild() {
    return this.childNodes.at(-1);
  }

  remove() {
    this.parent.childNodes.splice(this.parent.childNodes.indexOf(this), 1);
  }

  get textContent() {
    return this.childNodes.map((child) => child.textContent).join('');
  }
}

class Text extends Node {
  constructor(text) {
    super();
    this.text = text;
  }

  get textContent() {
    return this.text;
  }
}

class Element extends Node {
  constructor(tag) {
    super();
    if (!/^[a-z][a-z0-9]*$/.test(tag)) throw new Error(`an element named ${tag}`);
    this.tag = tag;
    this.attributes = {};
  }

  setAttribute(name, value) {
    this.attributes[name] = value;
  }

  set innerHTML(text) {
    throw new Error('innerHTML');
  }
}

export const document = {
  createElement: (tag) => new Element(tag),
  createTextNode: (text) => new Text(text),
};

/** All elements below a node. */
export function elements(node) {
  return node.childNodes.flatMap((child) => (child instanceof Element ? [child, ...elements(child)] : []));
}

/** The tree as text: `p(em("a") "b")`. Attributes that every link and every code block has are left out. */
export function outline(node) {
  return node.childNodes.map((child) => {
    if (child instanceof Text) return JSON.stringify(child.text);
    const href = child.attributes.href ? ` ${child.attributes.href}` : '';
    const start = child.attributes.start ? ` ${child.attributes.start}` : '';
    return `${child.tag}${href}${start}(${outline(child)})`;
  }).join(' ');
}
