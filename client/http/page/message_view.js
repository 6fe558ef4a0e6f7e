// One message of the conversation as elements.
import { el, button } from './dom.js';
import { MarkdownView } from './markdown.js';
import { branchOf } from './conversation.js';
import { copyWithButton } from './clipboard.js';
import { answerFigures } from './format.js';

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

export class MessageView {
  #reasoning = null;
  #calls = [];

  /** actions: {regenerate, continue, edit, branch, results} functions of the chat. */
  constructor(message, conversation, actions) {
    this.message = message;
    this.conversation = conversation;
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

  /** running: the answer is arriving. last: nothing follows it. */
  update(running, last) {
    const { message } = this;
    this.node.setAttribute('aria-busy', String(running));
    this.heading.textContent = nameOf(message);
    this.#showReasoning(running);
    if (this.markdown) this.markdown.update(message.content);
    else this.body.textContent = message.content;
    this.body.classList.toggle('waiting', running && !message.content && !message.calls?.length);
    this.#showCalls();
    this.error.hidden = !message.error;
    this.error.textContent = `${message.content ? 'The answer broke off' : 'No answer'}: ${message.error}`;
    if (!running) this.#showFoot(last);
    else this.figures.textContent = '';
  }

  #showReasoning(running) {
    if (!this.message.reasoning) return;
    if (!this.#reasoning) {
      this.#reasoning = { label: el('summary'), text: el('div', { class: 'reasoning-text' }) };
      this.body.before(el('details', { class: 'reasoning' }, this.#reasoning.label, this.#reasoning.text));
    }
    const words = this.message.reasoning.trim().split(/\s+/).length;
    const going = running && !this.message.content;
    this.#reasoning.label.textContent = `Reasoning: ${words} words${going ? ' so far' : ''}`;
    this.#reasoning.text.textContent = this.message.reasoning.trim();
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
      this.#calls[i].name.textContent = `Calls ${call.name || 'a tool'}`;
      this.#calls[i].text.textContent = readable(call.arguments);
    });
  }

  #showFoot(last) {
    const { message, actions } = this;
    this.figures.textContent = message.role === 'assistant' ? answerFigures(message) : '';
    const nodes = [this.figures, this.#branchNode()];
    const copy = button('Copy', () => copyWithButton(copy, message.content));
    if (message.content) nodes.push(copy);
    if (message.role === 'user') nodes.push(button('Edit', () => this.edit()));
    if (message.role === 'assistant') nodes.push(button('Regenerate', () => actions.regenerate(message)));
    const cut = ['length', 'stopped', ''].includes(message.finish ?? '');
    if (last && message.role === 'assistant' && cut && message.content && !message.calls?.length) {
      nodes.push(button('Continue', () => actions.continue(message)));
    }
    this.foot.replaceChildren(...nodes.filter(Boolean));
  }

  #branchNode() {
    const { index, siblings } = branchOf(this.conversation, this.message);
    if (siblings.length < 2) return null;
    const step = (by, text, name) => button(text, () => this.actions.branch(this.message, by), {
      'aria-label': name, disabled: !siblings[index + by] });
    return el('span', { class: 'branch', role: 'group', 'aria-label': 'Versions' },
              step(-1, '\u2039', 'Earlier version'),
              el('span', {}, `${index + 1} of ${siblings.length}`),
              step(1, '\u203a', 'Later version'));
  }

  /** The question as a field; sending it makes a branch. */
  edit() {
    const field = el('textarea', { value: this.message.content, 'aria-label': 'Edited question',
                                   rows: Math.min(12, this.message.content.split('\n').length + 1) });
    const close = () => {
      form.replaceWith(this.body);
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
      if (event.key === 'Escape') close();
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    this.body.replaceWith(form);
    this.foot.hidden = true;
    field.focus();
  }

  /** Fields for the results of these calls. */
  askForResults(calls) {
    const fields = calls.map((call) => el('textarea', { rows: 2 }));
    const labels = calls.map((call, i) => el('label', {}, `Result of ${call.name}`, fields[i]));
    this.callBox.append(el('form', { class: 'edit', on: { submit: (event) => {
      event.preventDefault();
      this.actions.results(this.message, calls.map((call, i) => ({ call, text: fields[i].value })));
    } } }, ...labels, el('div', { class: 'row' }, el('span', { class: 'grow' }),
                         el('button', { type: 'submit', class: 'strong' }, 'Send results'))));
  }
}
