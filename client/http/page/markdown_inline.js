// Markdown within a line: code, emphasis, links. Text in, a tree of plain objects out; every step is linear in the text,
// which is a model's and may be hostile.
//
// Node: {type: 'text' | 'code' | 'math', text} | {type: 'break'} | {type: 'em' | 'strong' | 'del', children} |
//       {type: 'link', href, children}

const MAX_LINK = 2048; // characters of an address
const MAX_NESTED = 16; // emphasis in emphasis; a longer run of delimiters is text too
const SCHEMES = new Set(['http:', 'https:', 'mailto:']);
const PUNCTUATION = /[!-/:-@[-`{-~]/;

/** The address if a link may go there, else null. Relative ones may not: they would be this server's own. */
export function safeHref(address) {
  if (address.length > MAX_LINK || /[\u0000-\u0020\u007f]/.test(address)) return null;
  try {
    const url = new URL(address);
    return SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** Where each run of backticks has its next run of the same length: {start: [end, length]}. */
function codeSpans(text) {
  const last = new Map(); // length -> start of the next run
  const spans = new Map();
  const runs = [...text.matchAll(/`+/g)].reverse();
  for (const { index, 0: run } of runs) {
    if (last.has(run.length)) spans.set(index, [last.get(run.length), run.length]);
    last.set(run.length, index);
  }
  return spans;
}

function codeText(text) {
  const flat = text.replaceAll('\n', ' ');
  return flat.startsWith(' ') && flat.endsWith(' ') && flat.trim() ? flat.slice(1, -1) : flat;
}

/** Reads "(address "title")" at `at`. Returns {href, end}, or null. */
function linkTarget(text, at) {
  const part = text.slice(at, at + MAX_LINK);
  const found = /^\(\s{0,9}(?:<([^<>\n]*)>|([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*){0,9}))(?:\s{1,9}(?:"[^"]*"|'[^']*'))?\s{0,9}\)/.exec(part);
  return found ? { href: found[1] ?? found[2], end: at + found[0].length } : null;
}

function isSpace(c) {
  return c === '' || /\s/.test(c);
}

/** A run of * _ or ~~ : whether it can open and close (CommonMark's flanking rules). */
function delimiter(text, start, end) {
  const c = text[start];
  const before = text.charAt(start - 1), after = text.charAt(end);
  const left = !isSpace(after) && (!PUNCTUATION.test(after) || isSpace(before) || PUNCTUATION.test(before));
  const right = !isSpace(before) && (!PUNCTUATION.test(before) || isSpace(after) || PUNCTUATION.test(after));
  const word = c === '_';
  return {
    type: 'run', c, count: end - start, size: end - start,
    opens: end - start <= MAX_NESTED && left && (!word || !right || PUNCTUATION.test(before)),
    closes: end - start <= MAX_NESTED && right && (!word || !left || PUNCTUATION.test(after)),
  };
}

/** How many characters opener and closer use up: 2 is strong or deleted, 1 emphasis, 0 nothing. */
function pairSize(opener, closer) {
  if (opener.c === '~') return opener.count >= 2 && closer.count >= 2 ? 2 : 0;
  const both = opener.closes || closer.opens; // the "multiple of 3" rule
  if (both && (opener.size + closer.size) % 3 === 0 && (opener.size % 3 || closer.size % 3)) return 0;
  return opener.count >= 2 && closer.count >= 2 ? 2 : 1;
}

/** Turns runs of delimiters into emphasis. items: nodes and runs; returns nodes. */
function resolve(items) {
  const stack = []; // {run, children}: an opener, and what has followed it
  const base = [];
  const target = () => (stack.length ? stack[stack.length - 1].children : base);
  const drop = (level) => { // openers from `level` on are text
    const lost = stack.splice(level);
    for (const { run, children } of lost) {
      push(target(), { type: 'text', text: run.c.repeat(run.count) });
      for (const child of children) push(target(), child);
    }
  };
  const floor = {}; // of each character and kind of closer: stack height below which there is no opener for it
  for (const item of items) {
    if (item.type !== 'run') {
      push(target(), item);
      continue;
    }
    while (item.closes && item.count) {
      const key = item.c + (item.opens ? 'o' : '') + (item.size % 3) + (item.count > 1);
      let level = stack.length - 1;
      const bottom = Math.min(floor[key] ?? 0, stack.length);
      while (level >= bottom && !(stack[level].run.c === item.c && pairSize(stack[level].run, item))) level--;
      if (level < bottom) {
        floor[key] = stack.length;
        break;
      }
      drop(level + 1);
      const { run, children } = stack.pop();
      const size = pairSize(run, item);
      run.count -= size;
      item.count -= size;
      for (const k of Object.keys(floor)) floor[k] = Math.min(floor[k], stack.length);
      const node = { type: item.c === '~' ? 'del' : size === 2 ? 'strong' : 'em', children };
      if (run.count) stack.push({ run, children: [node] });
      else push(target(), node);
    }
    if (!item.count) continue;
    if (item.opens && stack.length < MAX_NESTED) stack.push({ run: item, children: [] });
    else push(target(), { type: 'text', text: item.c.repeat(item.count) });
  }
  drop(0);
  return base;
}

/** Appends a node; texts grow together. */
function push(list, node) {
  const last = list[list.length - 1];
  if (node.type === 'text' && last?.type === 'text') last.text += node.text;
  else list.push(node.type === 'text' ? { ...node } : node);
}

class Scanner {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.items = [];
    this.brackets = []; // places in items of "[" that may begin a link
    this.spans = codeSpans(text);
    this.ends = {}; // of mathematics: delimiters of which none follows any more
  }

  plain(text) {
    push(this.items, { type: 'text', text });
    this.at += text.length;
  }

  /** True if a code span begins in this part of the text and ends behind it. A shell variable in code ends no formula. */
  cutsCode(start, end) {
    const part = this.text.slice(start, end);
    for (let at = part.indexOf('`'); at >= 0; at = part.indexOf('`', at)) {
      const span = this.spans.get(start + at);
      at = span ? span[0] + span[1] - start : at + 1;
      if (at > part.length) return true;
    }
    return false;
  }

  /** Mathematics as it was written, with its delimiters; nothing in it is Markdown. False if there is no end. */
  math(open, close) {
    const end = this.ends[close] ? -1 : this.text.indexOf(close, this.at + open.length);
    if (end < 0) this.ends[close] = true;
    if (end <= this.at + open.length || (open === close && this.cutsCode(this.at, end + close.length))) return false;
    this.items.push({ type: 'math', text: this.text.slice(this.at, end + close.length) });
    this.at = end + close.length;
    return true;
  }

  /** $...$ as in Pandoc: no space inside of the dollars, no digit behind them; code goes first. Else a dollar is a dollar. */
  dollar() {
    if (this.text.startsWith('$$', this.at)) return this.math('$$', '$$') || this.plain('$$');
    const found = /\$(?!\s)(?:[^$\\]|\\[^])+\$(?!\d)/y;
    found.lastIndex = this.at;
    const text = found.exec(this.text)?.[0];
    if (!text || /\s\$$/.test(text) || this.cutsCode(this.at, this.at + text.length)) return this.plain('$');
    this.items.push({ type: 'math', text });
    this.at += text.length;
  }

  escape() {
    const next = this.text.charAt(this.at + 1);
    if ((next === '(' && this.math('\\(', '\\)')) || (next === '[' && this.math('\\[', '\\]'))) return;
    if (next === '\n') {
      this.items.push({ type: 'break' });
      this.at += 2;
    } else if (next && PUNCTUATION.test(next)) {
      this.at++;
      this.plain(next);
    } else {
      this.plain('\\');
    }
  }

  code() {
    const run = /`+/y;
    run.lastIndex = this.at;
    const ticks = run.exec(this.text)[0];
    const span = this.spans.get(this.at);
    if (!span) return this.plain(ticks);
    this.items.push({ type: 'code', text: codeText(this.text.slice(this.at + span[1], span[0])) });
    this.at = span[0] + span[1];
  }

  open(image) {
    this.brackets.push(this.items.length);
    this.items.push({ type: 'text', text: image ? '![' : '[' });
    this.items.push({ type: 'text', text: '' }); // keeps texts after it apart
    this.at += image ? 2 : 1;
  }

  close() {
    const start = this.brackets.pop();
    const target = start === undefined ? null : linkTarget(this.text, this.at + 1);
    const href = target && safeHref(target.href);
    if (!href) return this.plain(']');
    const [mark, ...inner] = this.items.splice(start);
    if (mark.text === '![') inner.unshift({ type: 'text', text: 'image: ' }); // none is ever loaded
    const children = resolve(inner).filter((n) => n.type !== 'text' || n.text);
    if (!children.length) children.push({ type: 'text', text: href });
    this.items.push({ type: 'link', href, children });
    this.brackets.length = 0; // a link holds no link
    this.at = target.end;
  }

  /** <https://...> or a bare https://... */
  address(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    const address = found && (found[1] ?? found[0].replace(/[.,;:!?'"*_~)\]]+$/, ''));
    const href = address && safeHref(address);
    if (!href) return this.plain(this.text[this.at]);
    this.items.push({ type: 'link', href, children: [{ type: 'text', text: address }] });
    this.at += found[1] ? found[0].length : address.length;
  }

  run(c) {
    let end = this.at;
    while (this.text[end] === c) end++;
    this.items.push(delimiter(this.text, this.at, end));
    this.at = end;
  }

  newline() {
    const last = this.items[this.items.length - 1];
    const hard = last?.type === 'text' && / {2,}$/.test(last.text.slice(-3));
    if (last?.type === 'text') last.text = last.text.trimEnd();
    if (hard) {
      this.items.push({ type: 'break' });
      this.at++;
    } else {
      this.plain('\n');
    }
  }

  step() {
    const c = this.text[this.at];
    if (c === '\\') this.escape();
    else if (c === '`') this.code();
    else if (c === '$') this.dollar();
    else if (c === '!' && this.text[this.at + 1] === '[') this.open(true);
    else if (c === '[') this.open(false);
    else if (c === ']') this.close();
    else if (c === '<') this.address(/<((?:https?:\/\/|mailto:)[^\s<>]{1,2040})>/y);
    else if (c === 'h' && !/\w/.test(this.text.charAt(this.at - 1))) this.address(/https?:\/\/[^\s<>"`]{1,2040}/y);
    else if (c === '*' || c === '_' || c === '~') this.run(c);
    else if (c === '\n') this.newline();
    else {
      const rest = /[^\\`$![\]<h*_~\n]+|[\s\S]/y;
      rest.lastIndex = this.at;
      this.plain(rest.exec(this.text)[0]);
    }
  }
}

export function parseInline(text) {
  const scanner = new Scanner(text);
  while (scanner.at < text.length) scanner.step();
  return resolve(scanner.items).filter((node) => node.type !== 'text' || node.text);
}
