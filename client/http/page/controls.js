// Policy and memory of a deployment, changed with the admin key.
import { el, button, announce } from './dom.js';
import { postAdmin } from './api.js';
import { bytes } from './format.js';

const STEPS = 100; // of the slider

export class Controls {
  inForce = null;
  #most = 0; // bytes: of all experts, the slider's end
  #editing = false;

  constructor(models) {
    this.models = models;
    this.policy = el('select', { id: 'policy' });
    this.setPolicy = button('Use policy', () => this.#send('./moed/policy', { policy: this.policy.value }));
    this.slider = el('input', { type: 'range', id: 'device-bytes', min: 0, max: STEPS, step: 1, on: {
      input: () => {
        this.#editing = true;
        this.#showSize();
      } } });
    this.size = el('output', { for: 'device-bytes' });
    this.setSize = button('Resize', () => {
      this.#editing = false;
      this.#send('./moed/resize', { device_bytes: this.#chosenBytes() });
    });
    this.state = el('p', { class: 'muted', role: 'status' });
    this.policyRow = el('div', { class: 'field', hidden: true }, el('label', { for: 'policy' }, 'Policy'),
                        el('div', { class: 'row' }, this.policy, this.setPolicy));
    this.sizeRow = el('div', { class: 'field', hidden: true },
                      el('label', { for: 'device-bytes' }, 'Device memory for experts ', this.size),
                      el('div', { class: 'row' }, this.slider, this.setSize));
    this.node = el('div', { class: 'controls' }, this.policyRow, this.sizeRow, this.state);
  }

  #chosenBytes() {
    return Math.round((this.#most * Number(this.slider.value)) / STEPS);
  }

  #showSize() {
    this.size.textContent = bytes(this.#chosenBytes());
    this.slider.setAttribute('aria-valuetext', this.size.textContent);
  }

  async #send(path, change) {
    this.state.textContent = 'Waiting for the deployment...';
    try {
      await postAdmin(path, { model: this.models.current.id, ...change });
      this.state.textContent = 'Done.';
    } catch (error) {
      this.state.textContent = `Not changed: ${error.message}`;
    }
    announce(this.state.textContent);
  }

  /** The policy in force; null: there is no device that could have one. */
  showPolicy(name) {
    this.inForce = name;
    if (name && document.activeElement !== this.policy) this.policy.value = name;
  }

  show(figures) {
    const names = figures.policies ?? [];
    if (names.length && names.length !== this.policy.length) {
      const value = this.policy.value || this.inForce;
      this.policy.replaceChildren(...names.map((name) => el('option', { value: name }, name)));
      this.policy.value = value;
    }
    this.policyRow.hidden = !names.length || !this.inForce;
    const size = figures.device_cache_bytes;
    this.#most = Math.max(figures.device_cache_most_bytes ?? 0, size ?? 0);
    this.sizeRow.hidden = !this.#most;
    if (!this.#most || this.#editing || document.activeElement === this.slider) return;
    this.slider.value = Math.round(((size ?? 0) / this.#most) * STEPS);
    this.#showSize();
  }
}
