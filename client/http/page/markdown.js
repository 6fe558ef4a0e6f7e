// Markdown as nodes of a document. A text never becomes markup: it only ever is a text node.
import { parseBlocks } from './markdown_blocks.js';
import { parseInline } from './markdown_inline.js';

function make(tag, ...children) {
  const node = document.createElement(tag);
  node.append(...children);
  return node;
}

function inlineNode(item) {
  switch (item.type) {
    case 'text': return document.createTextNode(item.text);
    case 'code': return make('code', item.text);
    case 'break': return make('br');
    case 'math': return mathNode('span', item.text);
    case 'link': {
      const link = make('a', ...item.children.map(inlineNode));
      link.setAttribute('href', item.href);
      link.setAttribute('title', item.href);
      link.setAttribute('target', '_blank');
      link.setAttribute('rel', 'noopener noreferrer nofollow');
      return link;
    }
    default: return make(item.type, ...item.children.map(inlineNode)); // em, strong, del
  }
}

function inline(text) {
  return parseInline(text).map(inlineNode);
}

function mathNode(tag, text) {
  const node = make(tag, text);
  node.setAttribute('class', 'math');
  return node;
}

function codeNode(block) {
  const copy = make('button', 'Copy');
  copy.setAttribute('type', 'button');
  copy.setAttribute('class', 'copy');
  copy.setAttribute('aria-label', 'Copy the code');
  const bar = make('div', make('span', block.language || 'text'), copy);
  bar.setAttribute('class', 'code-bar');
  const text = make('pre', make('code', block.text));
  text.setAttribute('tabindex', '0'); // so that the keyboard can scroll it
  const box = make('div', bar, text);
  box.setAttribute('class', 'code');
  return box;
}

function listNode(block) {
  const list = make(block.ordered ? 'ol' : 'ul', ...block.items.map((blocks) => {
    // an item of one paragraph has no space around it
    const tight = blocks.length && blocks[0].type === 'paragraph';
    const nodes = tight ? [...inline(blocks[0].text), ...blocks.slice(1).map(blockNode)] : blocks.map(blockNode);
    return make('li', ...nodes);
  }));
  if (block.ordered && block.start !== 1) list.setAttribute('start', String(block.start));
  return list;
}

function rowNode(cells, tag, align) {
  return make('tr', ...cells.map((text, i) => {
    const cell = make(tag, ...inline(text));
    if (tag === 'th') cell.setAttribute('scope', 'col');
    if (align[i] !== 'left') cell.setAttribute('class', align[i]);
    return cell;
  }));
}

function tableNode(block) {
  const head = make('thead', rowNode(block.head, 'th', block.align));
  const body = make('tbody', ...block.rows.map((row) => rowNode(row, 'td', block.align)));
  const box = make('div', make('table', head, body));
  box.setAttribute('class', 'table');
  return box;
}

/** A block's element. Headings begin at level 3: the page has its own above them. */
export function blockNode(block) {
  switch (block.type) {
    case 'heading': return make(`h${Math.min(6, block.level + 2)}`, ...inline(block.text));
    case 'code': return codeNode(block);
    case 'math': return mathNode('pre', block.text);
    case 'rule': return make('hr');
    case 'quote': return make('blockquote', ...block.blocks.map(blockNode));
    case 'list': return listNode(block);
    case 'table': return tableNode(block);
    default: return make('p', ...inline(block.text));
  }
}

/** An element that shows a growing text: an update makes anew only the blocks that have changed. */
export class MarkdownView {
  #shown = [];
  #text = '';

  constructor(node) {
    this.node = node;
  }

  update(text) {
    if (text === this.#text) return;
    this.#text = text;
    const blocks = parseBlocks(text);
    const keys = blocks.map((block) => JSON.stringify(block));
    let same = 0;
    while (same < keys.length && keys[same] === this.#shown[same]) same++;
    while (this.node.childNodes.length > same) this.node.lastChild.remove();
    this.node.append(...blocks.slice(same).map(blockNode));
    this.#shown = keys;
  }
}
