// Markdown's blocks: headings, paragraphs, code, mathematics, lists, quotes, tables, rules. Text in, plain objects out.
// The text inside of a block is left for markdown_inline.js. Nesting is bounded, whatever a model writes.
//
// Block: {type: 'paragraph' | 'heading', text, level?} | {type: 'code', language, text} | {type: 'math', text} |
//        {type: 'rule'} | {type: 'quote', blocks} | {type: 'list', ordered, start, items: [blocks]} |
//        {type: 'table', align: ['left'...], head: [text], rows: [[text]]}

const MAX_DEPTH = 12;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const FENCE = /^( {0,3})(`{3,}(?=[^`]*$)|~{3,})/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|(\d{1,9})[.)])(?:( {1,4})(?=\S)|[ \t]*$|[ \t]+(?=\S))/;
const MATH = /^ {0,3}(\$\$|\\\[)/;
const MATH_ENDS = { '$$': '$$', '\\[': '\\]' };
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*(?:\|[ \t]*)?$/;

function isBlank(line) {
  return /^\s*$/.test(line);
}

function indentOf(line) {
  return /^ */.exec(line)[0].length;
}

/** The cells of a table's row; `\|` is a bar inside of a cell. */
function cellsOf(line) {
  const cells = [];
  let cell = '';
  const row = line.trim().replace(/^\|/, '');
  for (let i = 0; i < row.length; i++) {
    if (row[i] === '\\' && row[i + 1] === '|') cell += row[++i];
    else if (row[i] === '|') {
      cells.push(cell.trim());
      cell = '';
    } else cell += row[i];
  }
  if (cell.trim() || !row.endsWith('|')) cells.push(cell.trim());
  return cells;
}

function alignOf(cell) {
  if (/^:-+:$/.test(cell)) return 'center';
  return /^-+:$/.test(cell) ? 'right' : 'left';
}

/** True if this line ends a paragraph above it. */
function interrupts(line) {
  const item = ITEM.exec(line);
  return RULE.test(line) || HEADING.test(line) || FENCE.test(line) || QUOTE.test(line) ||
    (item !== null && !isBlank(line.slice(item[0].length)) && (item[3] === undefined || item[3] === '1'));
}

class Reader {
  constructor(lines, depth) {
    this.lines = lines;
    this.at = 0;
    this.depth = depth;
    this.blocks = [];
    this.mathEnds = {};
  }

  get line() {
    return this.lines[this.at];
  }

  nested(lines) {
    return this.depth < MAX_DEPTH ? readLines(lines, this.depth + 1)
                                  : [{ type: 'paragraph', text: lines.join('\n').trim() }];
  }

  /** Of each line the next one, itself included, that has the delimiter or is blank; the number of lines if none. */
  endsOf(delimiter) {
    if (this.mathEnds[delimiter]) return this.mathEnds[delimiter];
    const ends = new Array(this.lines.length + 1).fill(this.lines.length);
    for (let i = this.lines.length - 1; i >= 0; i--) {
      ends[i] = this.lines[i].includes(delimiter) || isBlank(this.lines[i]) ? i : ends[i + 1];
    }
    this.mathEnds[delimiter] = ends;
    return ends;
  }

  /** If a display formula begins at this line: the line and the place where it ends. Null if it does not end before a blank
   * line. Of an answer that still arrives the end may be missing; then the opening delimiter has to be alone. */
  mathEnd() {
    const opening = MATH.exec(this.line);
    if (!opening) return null;
    const close = MATH_ENDS[opening[1]];
    const at = this.line.indexOf(close, opening[0].length);
    if (at >= 0) return isBlank(this.line.slice(at + 2)) ? { line: this.at, at: at + 2 } : null; // with text: inline
    const line = this.endsOf(close)[this.at + 1];
    if (line === this.lines.length) return isBlank(this.line.slice(opening[0].length)) ? { line, at: 0 } : null;
    return isBlank(this.lines[line]) ? null : { line, at: this.lines[line].indexOf(close) + 2 };
  }

  math({ line, at }) {
    const text = this.lines.slice(this.at, line);
    this.at = line;
    if (line < this.lines.length) {
      text.push(this.line.slice(0, at));
      this.lines[line] = this.line.slice(at).trimStart(); // what follows on the line is a paragraph
      if (isBlank(this.line)) this.at++;
    }
    return { type: 'math', text: text.join('\n') };
  }

  code() {
    const [opening, indent, fence] = FENCE.exec(this.line);
    const language = this.line.slice(opening.length).trim().split(/\s/, 1)[0];
    const end = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}[ \\t]*$`);
    const text = [];
    for (this.at++; this.at < this.lines.length && !end.test(this.line); this.at++) {
      text.push(this.line.slice(Math.min(indent.length, indentOf(this.line))));
    }
    this.at++; // the fence; an answer that still arrives has none yet
    return { type: 'code', language, text: text.join('\n') };
  }

  quote() {
    const inner = [];
    for (; this.at < this.lines.length; this.at++) {
      if (QUOTE.test(this.line)) inner.push(this.line.replace(QUOTE, ''));
      else if (isBlank(this.line) || interrupts(this.line) || !inner.length || isBlank(inner[inner.length - 1])) break;
      else inner.push(this.line); // a paragraph goes on without the mark
    }
    return { type: 'quote', blocks: this.nested(inner) };
  }

  /** The lines of one item, without their indent. */
  itemLines(found) {
    const width = found[1].length + found[2].length + (found[4]?.length ?? 1);
    const inner = [this.line.slice(found[0].length)];
    let blank = false;
    for (this.at++; this.at < this.lines.length; this.at++) {
      if (isBlank(this.line)) {
        blank = true;
        inner.push('');
      } else if (indentOf(this.line) >= width) {
        blank = false;
        inner.push(this.line.slice(width));
      } else if (blank || ITEM.test(this.line) || interrupts(this.line) || this.mathEnd()) {
        break;
      } else {
        inner.push(this.line.trimStart());
      }
    }
    return inner;
  }

  list(first) {
    const ordered = first[3] !== undefined;
    const mark = first[2].slice(-1);
    const items = [];
    for (let found = first; found; ) {
      items.push(this.nested(this.itemLines(found)));
      found = this.at < this.lines.length && !RULE.test(this.line) ? ITEM.exec(this.line) : null;
      if (found && found[2].slice(-1) !== mark) found = null;
    }
    return { type: 'list', ordered, start: ordered ? Number(first[3]) : 1, items };
  }

  isTable() {
    const next = this.lines[this.at + 1];
    return this.line.includes('|') && next !== undefined && next.includes('-') && TABLE_RULE.test(next) &&
      cellsOf(this.line).length === cellsOf(next).length;
  }

  table() {
    const head = cellsOf(this.line);
    const align = cellsOf(this.lines[this.at + 1]).map(alignOf);
    const rows = [];
    for (this.at += 2; this.at < this.lines.length && this.line.includes('|') && !isBlank(this.line); this.at++) {
      const cells = cellsOf(this.line);
      rows.push(head.map((_, i) => cells[i] ?? ''));
    }
    return { type: 'table', align, head, rows };
  }

  paragraph() {
    const text = [this.line.trimStart()];
    for (this.at++; this.at < this.lines.length && !isBlank(this.line) && !interrupts(this.line); this.at++) {
      if (this.mathEnd()) break;
      if (/^ {0,3}=+[ \t]*$/.test(this.line)) {
        this.at++;
        return { type: 'heading', level: 1, text: text.join('\n').trimEnd() };
      }
      if (this.isTable()) break;
      text.push(this.line.trimStart());
    }
    return { type: 'paragraph', text: text.join('\n').trimEnd() };
  }

  indented() {
    const text = [];
    for (; this.at < this.lines.length && (isBlank(this.line) || indentOf(this.line) >= 4); this.at++) {
      text.push(this.line.slice(4));
    }
    while (isBlank(text[text.length - 1])) text.pop();
    return { type: 'code', language: '', text: text.join('\n') };
  }

  heading(found) {
    let text = this.line.slice(found[0].length).trim();
    let end = text.length;
    while (text[end - 1] === '#') end--;
    if (end === 0 || isBlank(text[end - 1])) text = text.slice(0, end).trimEnd();
    this.at++;
    return { type: 'heading', level: found[1].length, text };
  }

  rule() {
    this.at++;
    return { type: 'rule' };
  }

  block() {
    const heading = HEADING.exec(this.line);
    if (heading) return this.heading(heading);
    if (RULE.test(this.line)) return this.rule();
    if (FENCE.test(this.line)) return this.code();
    const end = this.mathEnd();
    if (end) return this.math(end);
    if (QUOTE.test(this.line)) return this.quote();
    const item = ITEM.exec(this.line);
    if (item) return this.list(item);
    if (indentOf(this.line) >= 4) return this.indented();
    return this.isTable() ? this.table() : this.paragraph();
  }

  read() {
    while (this.at < this.lines.length) {
      if (isBlank(this.line)) this.at++;
      else this.blocks.push(this.block());
    }
    return this.blocks;
  }
}

function readLines(lines, depth) {
  return new Reader(lines, depth).read();
}

/** Tabs that indent as spaces, except within fenced code, which stays as it is. */
function expandTabs(lines) {
  let fence = null;
  return lines.map((line) => {
    const mark = /^[\s>]*(?:(?:[-*+]|\d{1,9}[.)])\s+)?(`{3,}|~{3,})/.exec(line)?.[1];
    const inside = fence !== null;
    if (!inside && mark) fence = mark;
    else if (inside && mark?.startsWith(fence)) fence = null;
    return inside && fence !== null ? line : line.replace(/^[\s>]+/, (indent) => indent.replaceAll('\t', '    '));
  });
}

export function parseBlocks(text) {
  return readLines(expandTabs(text.split(/\r\n|\r|\n/)), 0);
}
