// What a person may set for a conversation: fields, their place in a request, presets. Every value is kept as the text
// that was typed; an empty one leaves the choice to the server.

/** kind: number (with bounds), text, lines, choice, json. `name` is the request's parameter. */
export const PARAMETERS = [
  { name: 'temperature', label: 'Temperature', kind: 'number', min: 0, max: 5, step: 0.05,
    hint: '0: always the most probable token' },
  { name: 'max_tokens', label: 'Tokens at most', kind: 'number', min: 1, step: 1, hint: 'of an answer' },
  { name: 'top_p', label: 'Top-p', kind: 'number', min: 0, max: 1, step: 0.01 },
  { name: 'top_k', label: 'Top-k', kind: 'number', min: 0, step: 1 },
  { name: 'min_p', label: 'Min-p', kind: 'number', min: 0, max: 1, step: 0.01 },
  { name: 'repetition_penalty', label: 'Repetition penalty', kind: 'number', min: 0, max: 10, step: 0.05 },
  { name: 'seed', label: 'Seed', kind: 'number', min: 0, step: 1, hint: 'the same seed gives the same answer' },
  { name: 'reasoning_effort', label: 'Reasoning', kind: 'choice', choices: ['', 'none', 'low', 'medium', 'high'] },
  { name: 'thinking_budget_tokens', label: 'Reasoning tokens at most', kind: 'number', min: 0, step: 1 },
  { name: 'stop', label: 'Stop texts', kind: 'lines', hint: 'one a line' },
  { name: 'tools', label: 'Tools', kind: 'json', hint: 'a JSON array of functions; results are typed in by hand' },
  { name: 'more', label: 'Further parameters', kind: 'json', hint: 'a JSON object, as docs/http.md lists them' },
];

export const PRESETS = [
  { name: "The server's choice", values: {} },
  { name: 'Exact', values: { temperature: '0' } },
  { name: 'Balanced', values: { temperature: '0.7', top_p: '0.9' } },
  { name: 'Inventive', values: { temperature: '1.1', min_p: '0.05' } },
];

function numberOf(parameter, text) {
  const value = Number(text);
  if (!Number.isFinite(value)) throw new Error(`${parameter.label}: '${text}' is not a number`);
  if (value < (parameter.min ?? -Infinity) || value > (parameter.max ?? Infinity)) {
    throw new Error(`${parameter.label}: ${text} is out of range`);
  }
  if (parameter.step === 1 && !Number.isInteger(value)) throw new Error(`${parameter.label}: a whole number is needed`);
  return value;
}

function jsonOf(parameter, text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${parameter.label}: ${error.message}`);
  }
  const wantsArray = parameter.name === 'tools';
  if (value === null || typeof value !== 'object' || Array.isArray(value) !== wantsArray) {
    throw new Error(`${parameter.label}: a JSON ${wantsArray ? 'array' : 'object'} is needed`);
  }
  return value;
}

function valueOf(parameter, text) {
  switch (parameter.kind) {
    case 'number': return numberOf(parameter, text);
    case 'lines': return text.split('\n').filter(Boolean);
    case 'json': return jsonOf(parameter, text);
    default: return text;
  }
}

/** The parameters of a request. Throws an Error that names the setting that is wrong. */
export function requestParameters(settings) {
  const out = {};
  for (const parameter of PARAMETERS) {
    const text = String(settings[parameter.name] ?? '');
    if (!text.trim()) continue;
    const value = valueOf(parameter, text);
    if (parameter.name === 'more') Object.assign(out, value);
    else out[parameter.name] = value;
  }
  return out;
}

/** What a preset keeps: the parameters and the system prompt, and not what belongs to one conversation. */
export function presetValues(settings) {
  const names = ['system', ...PARAMETERS.map((parameter) => parameter.name)];
  return Object.fromEntries(names.filter((name) => settings[name]).map((name) => [name, settings[name]]));
}
