// One message of the conversation as elements. An update leaves the nodes of what has not changed: the focus, a selection, an
// opened reasoning and what was typed into a form stay.
import { el, button, setText } from './dom.js';
import { MarkdownView } from './markdown.js';
import { progressOf } from './answer.js';
import { isEmptyAnswer } from './conversation.js';
import { copyWithButton } from './clipboard.js';
import { answerFigures, promptProgress } from './format.js';
import { isComposing } from './shortcuts.js';

function nameOf(message) {
  if (message.role === 'user') return 'You';
  return message.role === 'tool' ? 'Result' : message.model || 'Model';
}

/** Arguments with line breaks where they are whole JSON; as they are while they arrive. */
function readable(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

/** What was wrong with an answer's end, or ''. One that has no end at all was arriving when its page was closed. */
function failureOf(message) {
  if (message.role !== 'assistant') return '';
  const reason = message.error?.replace(/\.$/, '') || (message.finish ? '' : 'the page was closed');
  if (!isEmptyAnswer(message)) return reason && `The answer broke off: ${reason}.`;
  const ended = message.finish === 'stopped' ? 'it was stopped' : 'the model ended it at once';
  return `No answer: ${reason || ended}. Later questions are sent without this one.`;
}

export class MessageView {
  #reasoning = null;
  #calls = [];
  #form = null; // in which the question is edited
  #results = null; // the form for the results of calls
  #foot = '';

  /** actions: {regenerate, continue, edit, branch, results} functions of the chat. */
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.body = el('div', { class: 'body' });
    this.markdown = message.role === 'assistant' ? new MarkdownView(this.body) : null;
    this.callBox = el('div', { class: 'calls' });
    this.error = el('p', { class: 'error', role: 'alert', hidden: true });
    this.figures = el('span', { class: 'figures' });
    this.foot = el('div', { class: 'foot' }, this.figures);
    const heading = el('h2', { class: 'who', id: `who-${message.id}` }, nameOf(message));
    this.heading = heading;
    this.node = el('article', { class: `message ${message.role}`, 'aria-labelledby': heading.id, tabIndex: -1 },
                   heading, this.body, this.callBox, this.error, this.foot);
  }

  /** running: the answer is arriving, since `waited` seconds. last: nothing follows it. siblings: it and its other versions.
   * calls: of its calls those that wait for results. */
  update({ running = false, waited = 0, last = false, siblings = [], calls = [] }) {
    const { message } = this;
    this.node.setAttribute('aria-busy', String(running));
    setText(this.heading, nameOf(message));
    this.#showReasoning(running);
    if (this.markdown) this.markdown.update(message.content);
    else setText(this.body, message.content);
    this.body.classList.toggle('waiting', running && !message.content && !message.calls?.length);
    this.#showCalls();
    const failure = running ? '' : failureOf(message);
    this.error.hidden = !failure;
    setText(this.error, failure);
    if (running) this.#showWait(isEmptyAnswer(message) ? promptProgress(progressOf(message), waited) : '');
    else this.#showFoot(last, siblings);
    this.#askForResults(calls);
  }

  #showReasoning(running) {
    if (!this.message.reasoning) return;
    if (!this.#reasoning) {
      this.#reasoning = { label: el('summary'), text: el('div', { class: 'reasoning-text' }) };
      this.body.before(el('details', { class: 'reasoning' }, this.#reasoning.label, this.#reasoning.text));
    }
    const words = this.message.reasoning.trim().split(/\s+/).length;
    const going = running && !this.message.content;
    setText(this.#reasoning.label, `Reasoning: ${words} words${going ? ' so far' : ''}`);
    setText(this.#reasoning.text, this.message.reasoning.trim());
  }

  #showCalls() {
    (this.message.calls ?? []).forEach((call, i) => {
      if (!this.#calls[i]) {
        const name = el('span');
        const text = el('code');
        const box = el('div', { class: 'code call' }, el('div', { class: 'code-bar' }, name),
                       el('pre', { tabIndex: 0 }, text));
        this.callBox.append(box);
        this.#calls[i] = { name, text };
      }
      setText(this.#calls[i].name, `Calls ${call.name || 'a tool'}`);
      setText(this.#calls[i].text, readable(call.arguments));
    });
  }

  #showWait(text) {
    setText(this.figures, text);
    this.#setFoot('running', () => [this.figures]);
  }

  /** Makes the foot of these nodes unless it is that one already. */
  #setFoot(kind, nodes) {
    if (kind === this.#foot) return;
    this.#foot = kind;
    const focused = this.foot.contains(document.activeElement) ? document.activeElement.textContent : null;
    this.foot.replaceChildren(...nodes());
    if (focused) ([...this.foot.querySelectorAll('button')].find((b) => b.textContent === focused) ?? this.node).focus();
  }

  #showFoot(last, siblings) {
    const { message, actions } = this;
    const cut = ['length', 'stopped', ''].includes(message.finish ?? '');
    const goesOn = last && message.role === 'assistant' && cut && Boolean(message.content) && !message.calls?.length;
    setText(this.figures, message.role === 'assistant' ? answerFigures(message) : '');
    this.#setFoot([siblings.indexOf(message), siblings.length, Boolean(message.content), goesOn].join(), () => {
      const nodes = [this.figures, this.#branchNode(siblings)];
      const copy = button('Copy', () => copyWithButton(copy, message.content));
      if (message.content) nodes.push(copy);
      if (message.role === 'user') nodes.push(button('Edit', () => this.edit()));
      if (message.role === 'assistant') nodes.push(button('Regenerate', () => actions.regenerate(message)));
      if (goesOn) nodes.push(button('Continue', () => actions.continue(message)));
      return nodes.filter(Boolean);
    });
  }

  #branchNode(siblings) {
    if (siblings.length < 2) return null;
    const index = siblings.indexOf(this.message);
    const step = (by, text, name) => button(text, () => this.actions.branch(this.message, by), {
      'aria-label': name, disabled: !siblings[index + by] });
    return el('span', { class: 'branch', role: 'group', 'aria-label': 'Versions' },
              step(-1, '\u2039', 'Earlier version'),
              el('span', {}, `${index + 1} of ${siblings.length}`),
              step(1, '\u203a', 'Later version'));
  }

  /** The question as a field; sending it makes a branch. */
  edit() {
    if (this.#form) return this.#form.querySelector('textarea').focus();
    const field = el('textarea', { value: this.message.content, 'aria-label': 'Edited question',
                                   rows: Math.min(12, this.message.content.split('\n').length + 1) });
    const close = () => {
      form.replaceWith(this.body);
      this.#form = null;
      this.foot.hidden = false;
      this.node.focus();
    };
    const form = el('form', { class: 'edit', on: { submit: (event) => {
      event.preventDefault();
      if (field.value.trim()) this.actions.edit(this.message, field.value.trim());
    } } }, field, el('div', { class: 'row' }, el('span', { class: 'grow' }),
                     button('Cancel', close, { class: 'quiet' }),
                     el('button', { type: 'submit', class: 'strong' }, 'Send as a new version')));
    field.addEventListener('keydown', (event) => {
      if (isComposing(event)) return;
      if (event.key === 'Escape') close();
      if (event.key === 'Enter' && !event.shiftKey) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    this.#form = form;
    this.body.replaceWith(form);
    this.foot.hidden = true;
    field.focus();
  }

  /** Fields for the results of these calls. */
  #askForResults(calls) {
    if (Boolean(calls.length) === Boolean(this.#results)) return; // all of them are answered at once
    if (this.#results) {
      this.#results.remove();
      this.#results = null;
      return;
    }
    const fields = calls.map(() => el('textarea', { rows: 2 }));
    const labels = calls.map((call, i) => el('label', {}, `Result of ${call.name}`, fields[i]));
    this.#results = el('form', { class: 'edit', on: { submit: (event) => {
      event.preventDefault();
      this.actions.results(this.message, calls.map((call, i) => ({ call, text: fields[i].value })));
    } } }, ...labels, el('div', { class: 'row' }, el('span', { class: 'grow' }),
                         el('button', { type: 'submit', class: 'strong' }, 'Send results')));
    this.callBox.append(this.#results);
  }
}
