// The panel of settings: system prompt, parameters and presets of the shown conversation; the page's colours.
import { byId, button, download, el, notify } from './dom.js';
import { PARAMETERS, PRESETS, presetValues } from './parameters.js';
import { exportJson, exportMarkdown } from './transfer.js';
import { readSetting, writeSetting } from './store.js';
import { titleOf } from './conversation.js';
import { shortcutName } from './shortcuts.js';

const THEMES = [['auto', 'As the system'], ['light', 'Light'], ['dark', 'Dark']];
const KEYS = [['Enter', 'send'], ['Shift+Enter', 'begin a line'], ['Esc', 'stop the answer'],
              [shortcutName('N'), 'new conversation'], [shortcutName('E'), 'edit the last question'],
              [shortcutName('M'), 'placement map'], [shortcutName('S'), 'settings']];

export function applyTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event('themechange'));
}

function fileName(conversation, ending) {
  const name = (conversation.title || 'conversation').replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 40);
  return `${name || 'conversation'}.${ending}`;
}

export class Settings {
  constructor(library) {
    this.library = library;
    this.node = byId('settings');
    library.onChange(() => this.#follow());
  }

  get conversation() {
    return this.library.current;
  }

  /** Another conversation is shown, or another tab has changed this one: its values stand in the fields. A field that has the
   * focus stays. */
  #follow() {
    if (this.node.hidden) return;
    const changed = this.edited !== this.conversation.edited && !this.node.contains(document.activeElement);
    if (this.shown !== this.conversation || changed) this.render();
  }

  render() {
    this.shown = this.conversation;
    this.edited = this.conversation.edited;
    this.node.replaceChildren(
      el('h2', {}, 'Settings'),
      el('section', { 'aria-label': 'Conversation' }, this.#title(), this.#system(), this.#presets(),
         ...PARAMETERS.map((parameter) => this.#parameter(parameter))),
      el('section', {}, el('h3', {}, 'Export this conversation'), this.#exports()),
      el('section', {}, this.#themes()),
      el('section', {}, el('h3', {}, 'Keys'), this.#keys()),
      el('section', {}, button('Forget the API keys of this tab', () => {
        sessionStorage.removeItem('moed.key');
        sessionStorage.removeItem('moed.adminKey');
        notify('The keys are forgotten.');
      })));
  }

  #set(name, value) {
    this.conversation.settings[name] = value;
    writeSetting('defaults', presetValues(this.conversation.settings));
    this.#save();
  }

  #save() {
    this.edited = this.conversation.edited = Date.now();
    this.library.save(this.conversation);
  }

  #labelled(label, hint, field) {
    field.id ||= `set-${label.toLowerCase().replace(/\W+/g, '-')}`;
    return el('div', { class: 'field' }, el('label', { for: field.id }, label, hint ? el('small', {}, ` ${hint}`) : null), field);
  }

  #title() {
    return this.#labelled('Title', '', el('input', { type: 'text', value: this.conversation.title, maxLength: 200, on: {
      change: (event) => {
        this.conversation.title = titleOf(event.target.value);
        this.#save();
      } } }));
  }

  #system() {
    return this.#labelled('System prompt', '', el('textarea', { rows: 4, value: this.conversation.settings.system ?? '', on: {
      change: (event) => this.#set('system', event.target.value) } }));
  }

  #parameter(parameter) {
    const value = this.conversation.settings[parameter.name] ?? '';
    const on = { change: (event) => this.#set(parameter.name, event.target.value) };
    const id = `set-${parameter.name}`;
    if (parameter.kind === 'choice') {
      const options = parameter.choices.map((choice) => el('option', { value: choice, selected: choice === value },
                                                           choice || "the model's choice"));
      return this.#labelled(parameter.label, parameter.hint, el('select', { id, on }, ...options));
    }
    if (parameter.kind === 'number') {
      const field = el('input', { id, type: 'number', step: parameter.step, value, on });
      for (const bound of ['min', 'max']) if (parameter[bound] !== undefined) field[bound] = parameter[bound];
      return this.#labelled(parameter.label, parameter.hint, field);
    }
    return this.#labelled(parameter.label, parameter.hint,
                          el('textarea', { id, rows: 2, value, spellcheck: false, class: 'mono', on }));
  }

  #presets() {
    const own = readSetting('presets', []);
    const all = [...PRESETS, ...own];
    const select = el('select', { id: 'preset', on: { change: () => this.#usePreset(all[select.value]) } },
                      el('option', { value: '' }, 'choose one'),
                      ...all.map((preset, i) => el('option', { value: i }, preset.name)));
    const name = el('input', { type: 'text', 'aria-label': 'Name of the new preset', placeholder: 'Name', maxLength: 60 });
    const keep = button('Keep these', () => {
      if (!name.value.trim()) return name.focus();
      const preset = { name: name.value.trim(), values: presetValues(this.conversation.settings) };
      writeSetting('presets', [...own.filter((other) => other.name !== preset.name), preset]);
      this.render();
    });
    const drop = button('Delete', () => {
      writeSetting('presets', own.filter((preset) => preset !== all[select.value]));
      this.render();
    }, { class: 'quiet', 'aria-label': 'Delete the chosen preset' });
    return el('div', {}, this.#labelled('Preset', '', select), el('div', { class: 'row' }, name, keep, own.length ? drop : null));
  }

  #usePreset(preset) {
    if (!preset) return;
    const { system, ...kept } = this.conversation.settings;
    for (const parameter of PARAMETERS) delete kept[parameter.name];
    this.conversation.settings = { ...kept, system: preset.values.system ?? system ?? '', ...preset.values };
    writeSetting('defaults', presetValues(this.conversation.settings));
    this.#save();
    this.render();
    byId('preset').focus();
  }

  #exports() {
    const save = (ending, type, write) => button(ending === 'md' ? 'Markdown' : 'JSON', () => {
      download(fileName(this.conversation, ending), type, write());
    });
    return el('div', { class: 'row' }, save('md', 'text/markdown', () => exportMarkdown(this.conversation)),
              save('json', 'application/json', () => exportJson([this.conversation])));
  }

  #themes() {
    const chosen = readSetting('theme', 'auto');
    const choices = THEMES.map(([value, label]) => el('label', { class: 'choice' },
      el('input', { type: 'radio', name: 'theme', value, checked: value === chosen, on: { change: () => {
        writeSetting('theme', value);
        applyTheme(value);
      } } }), label));
    return el('fieldset', {}, el('legend', {}, 'Colours'), ...choices);
  }

  #keys() {
    return el('dl', { class: 'keys' }, ...KEYS.flatMap(([key, what]) => [el('dt', {}, el('kbd', {}, key)), el('dd', {}, what)]));
  }
}
