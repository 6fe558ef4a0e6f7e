// The Markdown builder: cases written by hand from CommonMark's rules, and what a hostile model may write.
import assert from 'node:assert/strict';
import test from 'node:test';
import { document, elements, outline } from './fake_document.mjs';

globalThis.document = document;
const { MarkdownView } = await import('../../client/http/page/markdown.js');
const { parseInline, safeHref } = await import('../../client/http/page/markdown_inline.js');
const { parseBlocks } = await import('../../client/http/page/markdown_blocks.js');

function render(text) {
  const node = document.createElement('div');
  new MarkdownView(node).update(text);
  return node;
}

const CASES = [
  ['plain', 'p("plain")'],
  ['a\nb', 'p("a\\nb")'],
  ['a\n\nb', 'p("a") p("b")'],
  ['a  \nb', 'p("a" br() "b")'],
  ['a\\\nb', 'p("a" br() "b")'],
  ['# One', 'h3("One")'],
  ['## Two ##', 'h4("Two")'],
  ['###### Six', 'h6("Six")'],
  ['#no', 'p("#no")'],
  ['# a#', 'h3("a#")'],
  ['Title\n===', 'h3("Title")'],
  ['*a* _b_', 'p(em("a") " " em("b"))'],
  ['**a** __b__', 'p(strong("a") " " strong("b"))'],
  ['***a***', 'p(em(strong("a")))'],
  ['**a *b* c**', 'p(strong("a " em("b") " c"))'],
  ['snake_case_name', 'p("snake_case_name")'],
  ['2 * 3 * 4', 'p("2 * 3 * 4")'],
  ['**open', 'p("**open")'],
  ['*a **b*', 'p("*a *" em("b"))'],
  ['~~gone~~ ~one~', 'p(del("gone") " ~one~")'],
  ['`a*b*`', 'p(code("a*b*"))'],
  ['`` a`b ``', 'p(code("a`b"))'],
  ['`open', 'p("`open")'],
  ['*a `b* c`', 'p("*a " code("b* c"))'],
  ['\\*a\\*', 'p("*a*")'],
  ['[a](https://x.example/)', 'p(a https://x.example/("a"))'],
  ['[**a** b](https://x.example/ "t")', 'p(a https://x.example/(strong("a") " b"))'],
  ['[a](https://x.example/(b))', 'p(a https://x.example/(b)("a"))'],
  ['[a] (b)', 'p("[a] (b)")'],
  ['<https://x.example/a>', 'p(a https://x.example/a("https://x.example/a"))'],
  ['see https://x.example/a.', 'p("see " a https://x.example/a("https://x.example/a") ".")'],
  ['![cat](https://x.example/c.png)', 'p(a https://x.example/c.png("image: cat"))'],
  ['- a\n- b', 'ul(li("a") li("b"))'],
  ['* a\n  * b\n* c', 'ul(li("a" ul(li("b"))) li("c"))'],
  ['1. a\n2. b', 'ol(li("a") li("b"))'],
  ['3) a', 'ol 3(li("a"))'],
  ['- a\n\n  b', 'ul(li("a" p("b")))'],
  ['text\n- a', 'p("text") ul(li("a"))'],
  ['text\n2. a', 'p("text\\n2. a")'],
  ['> a\n> b\n\nc', 'blockquote(p("a\\nb")) p("c")'],
  ['> > a', 'blockquote(blockquote(p("a")))'],
  ['---', 'hr()'],
  ['* * *', 'hr()'],
  ['| a | b |\n|---|--:|\n| 1 | *2* |', 'div(table(thead(tr(th("a") th("b"))) tbody(tr(td("1") td(em("2"))))))'],
  ['a | b\n--- | ---\n1', 'div(table(thead(tr(th("a") th("b"))) tbody())) p("1")'],
  ['| a\\|b |\n|---|\n| c |', 'div(table(thead(tr(th("a|b"))) tbody(tr(td("c")))))'],
  ['the set \\(\\{1, 2\\}\\), say', 'p("the set " span("\\\\(\\\\{1, 2\\\\}\\\\)") ", say")'],
  ['$a*b*c$ and *d*', 'p(span("$a*b*c$") " and " em("d"))'],
  ['the $n$th of $x_1$, $x_2$.', 'p("the " span("$n$") "th of " span("$x_1$") ", " span("$x_2$") ".")'],
  ['$\\$5 + 1$', 'p(span("$\\\\$5 + 1$"))'],
  ['$5 and $10', 'p("$5 and $10")'],
  ['from $5 to $ 6 $ or \\$7$', 'p("from $5 to $ 6 $ or $7$")'],
  ['`$a*b*c$`', 'p(code("$a*b*c$"))'],
  ['Use $HOME and `$PATH`, or $`x`$', 'p("Use $HOME and " code("$PATH") ", or " span("$`x`$"))'],
  ['$$ is its number: `echo $$`', 'p("$$ is its number: " code("echo $$"))'],
  ['so $$x_{1}^{*} + y^{*}$$ holds', 'p("so " span("$$x_{1}^{*} + y^{*}$$") " holds")'],
  ['so \\[a_1 * b_1 * c\\] holds', 'p("so " span("\\\\[a_1 * b_1 * c\\\\]") " holds")'],
  ['\\[open* \\(open* $$open* $open', 'p("[open* (open* $$open* $open")'],
  ['a $$$$ b', 'p("a $$$$ b")'],
  ['$$x_{1}^{*} + y^{*}$$', 'pre("$$x_{1}^{*} + y^{*}$$")'],
  ['Then\n\\[\n\\begin{matrix} 1 & 2 \\\\ 3 & 4\n+ b\n# c\n\\]\nfollows *d*',
   'p("Then") pre("\\\\[\\n\\\\begin{matrix} 1 & 2 \\\\\\\\ 3 & 4\\n+ b\\n# c\\n\\\\]") p("follows " em("d"))'],
  ['$$\na\n= b$$ or *c*\nd', 'pre("$$\\na\\n= b$$") p("or " em("c") "\\nd")'],
  ['1. one:\n   $$\n   a_1\n   + b\n   $$\n2. two', 'ol(li("one:" pre("$$\\na_1\\n+ b\\n$$")) li("two"))'],
  ['- one\n\\[a*b*c\\]', 'ul(li("one")) pre("\\\\[a*b*c\\\\]")'],
  ['\\[\nstill *arriving*', 'pre("\\\\[\\nstill *arriving*")'],
  ['$$ not\n\n*mathematics*', 'p("$$ not") p(em("mathematics"))'],
  ['', ''],
  ['\r\na\r\n', 'p("a")'],
];

for (const [text, expected] of CASES) {
  test(`Markdown ${JSON.stringify(text)}`, () => assert.equal(outline(render(text)), expected));
}

function codeOf(text) {
  return elements(render(text)).find((node) => node.tag === 'pre').textContent;
}

test('code keeps every character', () => {
  assert.equal(codeOf('```c\nint a;\n\n\tb(`*x*`, "<b>");\n```'), 'int a;\n\n\tb(`*x*`, "<b>");');
  assert.equal(codeOf('~~~\n```\n~~~'), '```');
  assert.equal(codeOf('```\nno end yet'), 'no end yet');
  assert.equal(codeOf('- a\n  ```\n  x\n    y\n  ```'), 'x\n  y');
  assert.equal(codeOf('    indented\n      more'), 'indented\n  more');
  assert.equal(parseBlocks('```python title=x\n```')[0].language, 'python');
});

test('links go to http, https and mailto only', () => {
  for (const bad of ['javascript:alert(1)', 'JaVaScRiPt:alert(1)', 'data:text/html,<script>', 'vbscript:x', 'file:///etc/passwd',
                     'blob:https://x', '/v1/models', '//x.example', 'java\nscript:alert(1)', ' javascript:alert(1)', '#a', '',
                     'about:blank', 'https://', `https://x.example/${'a'.repeat(3000)}`]) {
    assert.equal(safeHref(bad), null, bad);
  }
  for (const good of ['http://x.example/', 'https://x.example/a?b#c', 'mailto:a@x.example']) assert.equal(safeHref(good), good);
});

const HOSTILE = [
  '<script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  '[a](javascript:alert(1))',
  '[a](JAVASCRIPT:alert(1) "t")',
  '[a](<javascript:alert(1)>)',
  '[a](&#106;avascript:alert(1))',
  '![a](javascript:alert(1))',
  '<javascript:alert(1)>',
  '```"><script>alert(1)</script>\nx\n```',
  '| <img src=x onerror=alert(1)> |\n|---|\n| <svg onload=alert(1)> |',
  '# <iframe src="javascript:alert(1)">',
  '[x](https://x.example/"onmouseover="alert(1))',
  '[<b>](https://x.example/)',
  '- <style>*{display:none}</style>',
];

const TAGS = new Set(['p', 'a', 'em', 'strong', 'del', 'code', 'pre', 'br', 'hr', 'ul', 'ol', 'li', 'blockquote', 'table', 'thead',
  'tbody', 'tr', 'th', 'td', 'div', 'span', 'button', 'h3', 'h4', 'h5', 'h6']);
const ATTRIBUTES = new Set(['href', 'title', 'target', 'rel', 'class', 'type', 'aria-label', 'tabindex', 'scope', 'start']);

for (const text of HOSTILE) {
  test(`hostile ${text.slice(0, 50)}`, () => {
    const node = render(text);
    for (const element of elements(node)) {
      assert.ok(TAGS.has(element.tag), element.tag);
      for (const [name, value] of Object.entries(element.attributes)) {
        assert.ok(ATTRIBUTES.has(name), name);
        if (name === 'href') assert.match(value, /^(https?:\/\/|mailto:)/);
        if (name === 'class') assert.match(value, /^[a-z-]+$/);
      }
    }
    const letters = (s) => s.replace(/[^a-z]/g, '');
    if (!text.includes('](') && !text.includes('```')) assert.ok(letters(node.textContent).includes(letters(text.replace(/[`#|-]/g, ''))), 'text is lost');
  });
}

test('no text takes long, and nothing nests deeply', () => {
  const long = 20000;
  const depth = (node) => 1 + Math.max(0, ...node.childNodes.map(depth));
  const texts = ['*', '_', '**a ', '*a _b ', '[', '](', '[a](', '![', '`', '`a``', '> ', '>', '- ', '1. ', '#', '# ', '|', '|-', ' ', '\t',
    '~', '~~a', '\\', '<', '<https://', 'https://', 'h', '(', '"', '\n', '\n\n', '\n> ', '\n- ', '```\n', '``` ', '*a* ', 'a*', ' *', '***',
    '[a](https://x.example/ "', '|a|\n|-|\n', '-', '- - ', '$', '$$', '$$\n', '$a', '$a ', '$`', '$$`', '$`$``', '\\(', '\\[', '\\[\n', '\\[a\n\n', '$$ a\n', '$\\', '=\n', 'a\n=', '\u0000', '\ud800'];
  for (const part of texts) {
    const text = part.repeat(Math.ceil(long / part.length)).slice(0, long);
    const node = render(text);
    assert.ok(depth(node) < 80, `${JSON.stringify(part)} nests ${depth(node)} deep`);
  }
  for (const pair of [['*', 'a*'], ['**', 'a**'], ['> ', 'a'], ['[', ']']]) {
    assert.ok(depth(render(pair[0].repeat(2000) + pair[1].repeat(2000))) < 80, pair[0]);
  }
});

test('a growing text gives the same nodes as the whole', () => {
  const text = '# A\n\n**b** `c`\n\n- d\n- e\n\n```js\nf()\n```\n\n| g |\n|---|\n| h |\n\nend';
  const node = document.createElement('div');
  const view = new MarkdownView(node);
  for (let n = 0; n <= text.length; n++) {
    view.update(text.slice(0, n));
    assert.equal(outline(node), outline(render(text.slice(0, n))));
  }
});

test('finished blocks stay the same elements while a text grows', () => {
  const node = document.createElement('div');
  const view = new MarkdownView(node);
  view.update('one\n\ntwo');
  const [first] = node.childNodes;
  view.update('one\n\ntwo and more\n\nthree');
  assert.equal(node.childNodes[0], first);
  assert.equal(node.childNodes.length, 3);
});

test('every character of a plain text arrives', () => {
  const text = 'a*b_c[d]e(f)g`h~i<j>k!l\\m';
  assert.equal(parseInline(text).map((node) => node.text ?? node.children[0].text).join(''), text);
});
