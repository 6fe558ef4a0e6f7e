// The shown conversation, and the answers that are running.
import { byId, button, el, announce, notify } from './dom.js';
import { MessageView } from './message_view.js';
import { appendMessage, childrenByParent, isEmptyAnswer, openCalls, requestMessages, shownPath, switchBranch } from './conversation.js';
import { requestParameters } from './parameters.js';
import { streamAnswer } from './answer.js';
import { count, scaled } from './format.js';
import { copyWithButton } from './clipboard.js';
import { isComposing } from './shortcuts.js';

const SAVE_MS = 1000; // how often a growing answer is written
const WAIT_MS = 1000; // how often the time is shown while nothing of an answer is here
const SPOKEN = 1200; // characters of an answer that a screen reader is given at once
const SHARE = 4; // showing a growing answer takes at most one part in so many of the time, however long it is
const NEAR_END = 80; // pixels: closer to the end, the view follows the answer

export class Chat {
  #views = new Map();
  #shown = null; // the conversation that they are of
  #running = new Map(); // conversation's id -> {controller, message}
  #frame = 0;
  #cost = 0; // milliseconds that the last refresh took

  constructor(library, models, tabs) {
    this.library = library;
    this.models = models;
    this.tabs = tabs;
    this.scroll = byId('scroll');
    this.list = byId('messages');
    this.question = byId('question');
    this.#connect();
    this.#connectTabs();
    this.#connectEnd();
  }

  get conversation() {
    return this.library.current;
  }

  /** The answer to the shown conversation that is arriving, here or in another tab: {message, controller}. */
  get running() {
    const { id, messages } = this.conversation;
    const elsewhere = this.tabs.elsewhere(id);
    return this.#running.get(id) ?? (elsewhere ? { message: messages[elsewhere], controller: null } : undefined);
  }

  #connect() {
    // on a touch keyboard there is no Shift+Enter
    const touch = window.matchMedia('(pointer: coarse)').matches;
    this.question.enterKeyHint = touch ? 'enter' : 'send';
    byId('composer').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.question.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || touch || isComposing(event)) return;
      event.preventDefault();
      this.#submit();
    });
    this.question.addEventListener('input', () => this.#fitQuestion());
    byId('stop').addEventListener('click', () => this.stop());
    this.list.addEventListener('click', (event) => {
      const copy = event.target.closest('.copy');
      if (copy) copyWithButton(copy, copy.closest('.code').querySelector('pre').textContent);
    });
  }

  #connectTabs() {
    const show = (id) => {
      if (id === this.conversation.id) this.render();
    };
    this.tabs.on('running', show);
    this.tabs.on('ended', async (id) => {
      await this.library.takeSaved(id);
      await this.library.takePartials(); // the tab of the answer may have been closed
      show(id);
    });
    this.tabs.on('stop', (id) => this.#running.get(id)?.controller.abort());
    this.tabs.connect(() => [...this.#running].map(([id, { message }]) => [id, message.id]));
    this.library.onChange(() => { // an answer to a conversation that was deleted, perhaps in another tab
      for (const [id, { controller }] of this.#running) if (!this.library.get(id)) controller.abort();
    });
  }

  #fitQuestion() {
    this.question.style.height = 'auto';
    this.question.style.height = `${Math.min(this.question.scrollHeight + 2, window.innerHeight * 0.4)}px`;
  }

  // ---- Asking ----

  #submit() {
    const text = this.question.value.trim();
    if (!text || this.running) return;
    const path = shownPath(this.conversation);
    if (!this.#mayAsk()) return;
    const message = appendMessage(this.conversation, path.at(-1)?.id ?? '', { content: text });
    this.question.value = '';
    this.#fitQuestion();
    this.#answer(message.id);
  }

  /** The parameters, if all is well; else says what is not. */
  #mayAsk() {
    try {
      if (this.running) throw new Error('An answer is still arriving.');
      if (!this.models.current) throw new Error('No model answers yet.');
      return requestParameters(this.conversation.settings);
    } catch (error) {
      const giveKey = { text: 'Give a key', action: () => this.models.load() };
      notify(error.message, !this.models.current && this.models.needsKey ? giveKey : {});
      return null;
    }
  }

  /** Asks for an answer below the message `parent`; `message` is an answer to be continued. */
  async #answer(parent, message = null) {
    const conversation = this.conversation;
    const parameters = this.#mayAsk();
    if (!parameters) return;
    message ??= appendMessage(conversation, parent, { role: 'assistant', model: this.models.current.id, reasoning: '',
                                                     figures: {}, finish: '', error: '' });
    const body = { model: this.models.current.id, ...parameters,
                   messages: requestMessages(conversation, message.content ? message.id : parent) };
    const wasLoaded = (this.models.current.status?.value ?? 'loaded') === 'loaded';
    const failed = await this.#arrive(conversation, message, body);
    if (failed === 404 || failed === 0 || !wasLoaded) this.models.load();
    if (this.conversation !== conversation) return;
    this.render();
    announce(message.error || `Answer: ${message.content.slice(0, SPOKEN)}`);
  }

  /** Returns the status of an error, or null. */
  async #arrive(conversation, message, body) {
    const controller = new AbortController();
    this.#running.set(conversation.id, { controller, message, begin: performance.now() });
    const clock = setInterval(() => this.#refresh(conversation, message), WAIT_MS);
    try {
      this.library.save(conversation);
      this.tabs.send('running', conversation.id, message.id);
      this.render();
      this.#toEnd();
      announce('The answer begins.');
      let saved = -Infinity; // the first token is written at once
      return await streamAnswer(body, message, controller.signal, () => {
        this.#refresh(conversation, message);
        if (isEmptyAnswer(message) || performance.now() - saved < SAVE_MS) return;
        saved = performance.now();
        this.#keep(conversation, message);
      });
    } finally {
      clearInterval(clock);
      this.#running.delete(conversation.id);
      message.calls = message.calls?.filter(Boolean);
      message.version = (message.version ?? 0) + 1;
      this.library.save(conversation).finally(() => this.tabs.send('ended', conversation.id));
    }
  }

  #connectEnd() {
    const each = (action) => {
      for (const [id, { message }] of this.#running) {
        const conversation = this.library.get(id);
        if (conversation) action(conversation, message);
      }
    };
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) each((conversation, message) => this.#keep(conversation, message));
    });
    window.addEventListener('pagehide', () => each((conversation, message) => {
      message.version = (message.version ?? 0) + 1;
      this.library.keepPartial(conversation, message);
      this.tabs.send('ended', conversation.id);
    }));
  }

  /** Writes an answer as far as it has come. */
  #keep(conversation, message) {
    message.version = (message.version ?? 0) + 1;
    this.library.keep(conversation);
  }

  stop() {
    const { running } = this;
    if (running?.controller) running.controller.abort();
    else if (running) this.tabs.send('stop', this.conversation.id);
  }

  #actions = {
    regenerate: (message) => this.#answer(message.parent),
    continue: (message) => this.#answer(message.parent, message),
    edit: (message, text) => {
      if (!this.#mayAsk()) return;
      this.#answer(appendMessage(this.conversation, message.parent, { content: text }).id);
    },
    branch: (message, by) => {
      if (this.running) return;
      switchBranch(this.conversation, message, by);
      this.library.save(this.conversation);
      this.render();
      const shown = this.conversation.chosen[message.parent];
      (this.#views.get(shown).node.querySelector('.branch button:enabled')).focus();
    },
    results: (message, results) => {
      if (!this.#mayAsk()) return;
      let parent = message.id;
      for (const { call, text } of results) {
        parent = appendMessage(this.conversation, parent, { role: 'tool', call: call.id, content: text }).id;
      }
      this.#answer(parent);
    },
  };

  /** Opens the last question as a field. */
  editLast() {
    const last = shownPath(this.conversation).filter((message) => message.role === 'user').at(-1);
    if (last && !this.running) this.#views.get(last.id).edit();
  }

  // ---- Showing ----

  /** Shows the conversation as it is now. A message that was shown before keeps its elements. */
  render() {
    const { conversation } = this;
    const path = shownPath(conversation);
    const running = this.running?.message;
    const follows = this.#atEnd();
    const lostFocus = this.#dropViews(path);
    const last = path.at(-1);
    const children = childrenByParent(conversation);
    path.forEach((message, i) => {
      const view = this.#views.get(message.id) ?? new MessageView(message, this.#actions);
      this.#views.set(message.id, view);
      if (this.list.children[i] !== view.node) this.list.insertBefore(view.node, this.list.children[i] ?? null);
      const asks = message === last && message !== running && message.role === 'assistant';
      view.update({ running: message === running, waited: this.#waited(), last: message === last,
                    siblings: children.get(message.parent), calls: asks ? openCalls(conversation, message) : [] });
    });
    if (lostFocus && last) this.#views.get(last.id).node.focus({ preventScroll: true });
    this.#showState(path);
    if (follows) this.#toEnd();
  }

  /** Removes what is not in the path. Returns whether it had the focus. */
  #dropViews(path) {
    const same = this.#shown === this.conversation;
    const kept = new Set(path.map((message) => message.id));
    this.#shown = this.conversation;
    let focus = false;
    for (const [id, view] of this.#views) {
      if (same && kept.has(id)) continue;
      focus ||= same && view.node.contains(document.activeElement);
      view.node.remove();
      this.#views.delete(id);
    }
    return focus;
  }

  /** After more of an answer has arrived: once a frame at most, and less often where that takes long. */
  #refresh(conversation, message) {
    if (this.#frame || this.conversation !== conversation) return;
    this.#frame = setTimeout(() => requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.conversation !== conversation || this.running?.message !== message) return;
      const begin = performance.now();
      const follows = this.#atEnd();
      this.#views.get(message.id)?.update({ running: true, last: true, waited: this.#waited() });
      if (follows) this.#toEnd();
      this.#cost = performance.now() - begin;
    }), this.#cost * SHARE);
  }

  /** Seconds since the question was sent; 0 where another tab did. */
  #waited() {
    const { begin } = this.running ?? {};
    return begin ? (performance.now() - begin) / 1000 : 0;
  }

  #atEnd() {
    return this.scroll.scrollHeight - this.scroll.scrollTop - this.scroll.clientHeight < NEAR_END;
  }

  #toEnd() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
  }

  #showState(path) {
    const running = Boolean(this.running);
    byId('send').hidden = running;
    byId('stop').hidden = !running;
    this.#showContext(path);
    this.showWelcome(path.length === 0);
  }

  #showContext(path) {
    const figures = path.filter((message) => message.figures?.prompt !== undefined).at(-1)?.figures;
    const limit = this.models.current?.max_model_len;
    const used = figures ? figures.prompt + (figures.tokens ?? 0) : 0;
    byId('context').textContent = limit ? `Context: ${count(used, 'token').replace(/ tokens?$/, '')} of ${count(limit, 'token')}` : '';
    byId('context').classList.toggle('warn', Boolean(limit) && used > limit * 0.85);
  }

  showWelcome(shown = !shownPath(this.conversation).length) {
    const box = byId('welcome');
    box.hidden = !shown;
    if (!shown) return;
    const model = this.models.current;
    if (!model) {
      box.replaceChildren(el('h2', {}, 'No model answers yet'),
                          el('p', {}, this.models.reason || 'The page looks again every few seconds.'),
                          this.models.needsKey ? button('Give a key', () => this.models.load(), { class: 'strong' }) : '');
      return;
    }
    const meta = model.meta ?? {};
    const rows = [['Architecture', meta.architecture], ['Parameters', meta.n_params && scaled(meta.n_params, '')],
                  ['Experts', meta.n_experts && `${meta.n_experts} a layer, ${meta.n_experts_used} used by a token`],
                  ['File', meta.size && scaled(meta.size, 'B')], ['Context', model.max_model_len && count(model.max_model_len, 'token')],
                  ['Trained on', !model.max_model_len && meta.n_ctx_train && count(meta.n_ctx_train, 'token')]];
    const facts = rows.filter((row) => row[1]).flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]);
    box.replaceChildren(el('h2', {}, model.id), el('dl', {}, ...facts),
                        el('p', { class: 'muted' }, this.library.keeps
                          ? 'Conversations are kept in this browser only.'
                          : 'This browser keeps no data: conversations end with this tab.'));
  }
}
