// The page's parts that need no browser: event streams, conversations as trees, files, parameters, answers, the map.
import assert from 'node:assert/strict';
import test from 'node:test';

globalThis.document = { addEventListener() {} };
const page = '../../client/http/page/';
const { EventReader, responseEvents } = await import(`${page}event_stream.js`);
const conversations = await import(`${page}conversation.js`);
const { Library } = await import(`${page}library.js`);
const { exportJson, exportMarkdown, importJson } = await import(`${page}transfer.js`);
const { requestParameters, PARAMETERS, PRESETS } = await import(`${page}parameters.js`);
const { addFigures, progressOf, streamAnswer, takeChunk, takeProgress, takeTimes } = await import(`${page}answer.js`);
const { PlacementMap } = await import(`${page}map_model.js`);
const { labelStep } = await import(`${page}map_canvas.js`);
const { isComposing, shortcutName, shortcutOf } = await import(`${page}shortcuts.js`);
const { answerFigures, bytes, promptProgress, percent, scaled, seconds } = await import(`${page}format.js`);

// ---- Event streams ----

const STREAM = ': hello\n\ndata: one\n\nevent: two\r\ndata: a\r\ndata:b\r\n\r\ndata\n\nid: 7\nretry: 9\n\ndata: last\r\r';
const EVENTS = [{ name: '', data: 'one' }, { name: 'two', data: 'a\nb' }, { name: '', data: '' }, { name: '', data: 'last' }];

test('an event stream, cut anywhere', () => {
  for (let size = 1; size <= STREAM.length; size++) {
    const reader = new EventReader();
    const events = [];
    for (let at = 0; at < STREAM.length; at += size) events.push(...reader.push(STREAM.slice(at, at + size)));
    events.push(...reader.push('\n')); // shows that a last carriage return was a whole end of line
    assert.deepEqual(events, EVENTS, `pieces of ${size}`);
  }
});

test('an event stream as bytes, cut within a character', async () => {
  const bytes = new TextEncoder().encode('data: \u00e9\u{1f642}\n\n');
  const body = new ReadableStream({ start(controller) {
    for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
    controller.close();
  } });
  const events = [];
  for await (const event of responseEvents({ body })) events.push(event.data);
  assert.deepEqual(events, ['\u00e9\u{1f642}']);
});

// ---- Conversations ----

function talk() {
  const c = conversations.newConversation({ system: ' Be brief. ' });
  const ask = conversations.appendMessage(c, '', { content: 'first question\nmore' });
  const answer = conversations.appendMessage(c, ask.id, { role: 'assistant', content: 'first answer' });
  return { c, ask, answer };
}

const contents = (c) => conversations.shownPath(c).map((m) => m.content);

test('an edited question is a branch, and both stay', () => {
  const { c, ask } = talk();
  assert.equal(c.title, 'first question');
  const edited = conversations.appendMessage(c, ask.parent, { content: 'edited' });
  assert.deepEqual(contents(c), ['edited']);
  assert.deepEqual(conversations.branchOf(c, edited).index, 1);
  conversations.switchBranch(c, edited, -1);
  assert.deepEqual(contents(c), ['first question\nmore', 'first answer']);
  conversations.switchBranch(c, ask, -1); // there is none
  assert.deepEqual(contents(c), ['first question\nmore', 'first answer']);
});

test('a request holds the shown branch only', () => {
  const { c, ask, answer } = talk();
  conversations.appendMessage(c, ask.id, { role: 'assistant', content: 'second answer' });
  const next = conversations.appendMessage(c, answer.id, { content: 'next' });
  assert.deepEqual(conversations.requestMessages(c, next.id), [
    { role: 'system', content: 'Be brief.' }, { role: 'user', content: 'first question\nmore' },
    { role: 'assistant', content: 'first answer' }, { role: 'user', content: 'next' }]);
});

test('a question without an answer is not in later requests', () => {
  const { c, answer } = talk();
  const tooLong = conversations.appendMessage(c, answer.id, { content: 'too long' });
  const failed = conversations.appendMessage(c, tooLong.id, { role: 'assistant', content: '', reasoning: '', error: 'too long' });
  const next = conversations.appendMessage(c, failed.id, { content: 'next' });
  const sent = (last) => conversations.requestMessages(c, last.id).map((m) => m.content).slice(1);
  assert.deepEqual(sent(next), ['first question\nmore', 'first answer', 'next']);
  assert.deepEqual(sent(tooLong), ['first question\nmore', 'first answer', 'too long']);
  const thought = conversations.appendMessage(c, next.id, { role: 'assistant', content: '', reasoning: 'hm' });
  const result = conversations.appendMessage(c, thought.id, { role: 'tool', call: 'c', content: 'a result' });
  const none = conversations.appendMessage(c, result.id, { role: 'assistant', content: '' });
  const last = conversations.appendMessage(c, none.id, { content: 'last' });
  assert.deepEqual(sent(last), ['first question\nmore', 'first answer', 'next', '', 'a result', 'last']);
});

test('calls, their results and reasoning go back to the model', () => {
  const { c, ask } = talk();
  const answer = conversations.appendMessage(c, ask.id, { role: 'assistant', content: '', reasoning: 'hm',
    calls: [{ id: 'c1', name: 'f', arguments: '{}' }, { id: 'c2', name: 'g', arguments: '{}' }] });
  assert.deepEqual(conversations.openCalls(c, answer).map((call) => call.id), ['c1', 'c2']);
  const result = conversations.appendMessage(c, answer.id, { role: 'tool', call: 'c1', content: '42' });
  assert.deepEqual(conversations.openCalls(c, answer).map((call) => call.id), ['c2']);
  assert.deepEqual(conversations.requestMessages(c, result.id).slice(2), [
    { role: 'assistant', content: '', reasoning_content: 'hm', tool_calls: [
      { id: 'c1', type: 'function', function: { name: 'f', arguments: '{}' } },
      { id: 'c2', type: 'function', function: { name: 'g', arguments: '{}' } }] },
    { role: 'tool', tool_call_id: 'c1', content: '42' }]);
});

test('search finds all words, in any message', () => {
  const { c } = talk();
  assert.ok(conversations.matches(c, 'ANSWER question'));
  assert.ok(conversations.matches(c, '  '));
  assert.ok(!conversations.matches(c, 'answer nothing'));
});

test('what two tabs made of a conversation is merged', () => {
  const { c, answer } = talk();
  const other = structuredClone(c);
  const mine = conversations.appendMessage(c, answer.id, { content: 'mine' });
  const theirs = conversations.appendMessage(other, answer.id, { content: 'theirs' });
  conversations.appendMessage(other, theirs.id, { role: 'assistant', content: 'to theirs' });
  Object.assign(other.messages[answer.id], { content: 'a longer answer', version: 2 });
  Object.assign(other, { title: 'renamed', edited: 5 });
  assert.equal(conversations.mergeInto(c, other), true);
  assert.deepEqual(contents(c), ['first question\nmore', 'a longer answer', 'mine']);
  assert.equal(c.messages[answer.id], answer, 'the object that an answer fills stays');
  assert.equal(c.title, 'renamed');
  conversations.switchBranch(c, mine, 1);
  assert.deepEqual(contents(c).slice(2), ['theirs', 'to theirs']);
  Object.assign(answer, { content: 'longer still', version: 3 });
  assert.equal(conversations.mergeInto(c, other), false);
  assert.equal(answer.content, 'longer still');
});

// ---- The library ----

test('what another tab saved before a deletion here does not bring the conversation back', async () => {
  const { c } = talk();
  let read;
  const listeners = {};
  const store = { all: async () => [c], get: () => new Promise((resolve) => { read = resolve; }), remove: async () => {} };
  const library = new Library(store, { on: (type, listener) => { listeners[type] = listener; }, send: () => {} });
  await library.load();
  const taken = listeners.saved(c.id);
  library.remove(c);
  read(structuredClone(c));
  await taken;
  assert.deepEqual(library.sorted(), []);
  const back = listeners.saved(c.id); // the other tab undid it
  read(structuredClone(c));
  await back;
  assert.deepEqual(library.sorted().map((one) => one.id), [c.id]);
});

// ---- Files ----

test('an exported file comes back with all its branches', () => {
  const { c, ask } = talk();
  conversations.appendMessage(c, ask.id, { role: 'assistant', content: 'second', figures: { tokens: 3 },
                                           calls: [{ id: 'x', name: 'f', arguments: '{}' }] });
  const [back] = importJson(exportJson([c]));
  assert.notEqual(back.id, c.id);
  assert.deepEqual(contents(back), contents(c));
  assert.equal(Object.keys(back.messages).length, 3);
  const [, second] = conversations.shownPath(back);
  assert.deepEqual(second.figures, { tokens: 3 });
  assert.deepEqual(second.calls, [{ id: 'x', name: 'f', arguments: '{}' }]);
  assert.equal(back.settings.system, ' Be brief. ');
  assert.match(exportMarkdown(c), /^# first question\n\n## System\n\n Be brief\. \n\n## Question\n\nfirst question/);
});

test('a file that is not one of ours is refused with its reason', () => {
  const file = (conversation) => JSON.stringify({ format: 'moed conversations', version: 1, conversations: [conversation] });
  const message = (fields) => file({ messages: { a: { role: 'user', content: 'x', ...fields } } });
  assert.throws(() => importJson('{'), /not JSON/);
  assert.throws(() => importJson('null'), /no conversations/);
  assert.throws(() => importJson('{"format":"moed conversations"}'), /no conversations/);
  assert.throws(() => importJson(file(null)), /no messages/);
  assert.throws(() => importJson(file({})), /no messages/);
  assert.throws(() => importJson(message({ role: 'system' })), /role 'system'/);
  assert.throws(() => importJson(message({ content: {} })), /content is not a text/);
});

test('a hostile file makes nothing but a conversation', () => {
  const hostile = '{"format":"moed conversations","conversations":[{"title":"t","messages":{' +
    '"__proto__":{"role":"user","content":"p","parent":"constructor"},"a":{"role":"user","content":"x","parent":"b"},' +
    '"b":{"role":"user","content":"y","parent":"a","evil":1}},"chosen":{"":"__proto__","a":"b","b":"a"},' +
    '"settings":{"__proto__":{"polluted":true},"system":"s","temperature":{}}}]}';
  const [c] = importJson(hostile);
  assert.equal({}.polluted, undefined);
  assert.equal(c.settings.system, 's');
  assert.ok(!('temperature' in c.settings) && !c.settings.polluted);
  assert.deepEqual(contents(c), ['p']);
  for (const message of Object.values(c.messages)) {
    assert.ok(!('evil' in message));
    conversations.pathTo(c, message.id); // a circle ends
  }
});

// ---- Parameters ----

test('parameters are typed, and wrong ones are named', () => {
  assert.deepEqual(requestParameters({}), {});
  assert.deepEqual(requestParameters({ temperature: '0', stop: 'a\n\nb', reasoning_effort: 'low', more: '{"n": 1}', system: 's' }),
                   { temperature: 0, stop: ['a', 'b'], reasoning_effort: 'low', n: 1 });
  assert.deepEqual(requestParameters({ tools: '[{"type":"function"}]' }), { tools: [{ type: 'function' }] });
  assert.throws(() => requestParameters({ temperature: 'x' }), /Temperature: 'x' is not a number/);
  assert.throws(() => requestParameters({ top_p: '2' }), /Top-p: 2 is out of range/);
  assert.throws(() => requestParameters({ max_tokens: '1.5' }), /whole number/);
  assert.throws(() => requestParameters({ tools: '{}' }), /Tools: a JSON array/);
  assert.throws(() => requestParameters({ more: '[' }), /Further parameters:/);
  const names = new Set(PARAMETERS.map((parameter) => parameter.name));
  for (const preset of PRESETS) {
    for (const name of Object.keys(preset.values)) assert.ok(names.has(name), name);
    requestParameters(preset.values);
  }
});

// ---- Answers ----

const chunk = (delta, more = {}) => ({ choices: [{ index: 0, delta, finish_reason: null, ...more }] });
const emptyAnswer = () => ({ content: '', reasoning: '', figures: {} });

test('chunks become a message', () => {
  const message = emptyAnswer();
  assert.equal(takeChunk(message, chunk({ role: 'assistant', content: '' })), false);
  assert.equal(takeChunk(message, chunk({ reasoning_content: 'h', reasoning: 'h' })), true);
  assert.equal(takeChunk(message, chunk({ reasoning: 'm' })), true);
  takeChunk(message, chunk({ content: 'He' }));
  takeChunk(message, chunk({ content: 'llo' }));
  takeChunk(message, chunk({ tool_calls: [{ index: 0, id: 'c', function: { name: 'f', arguments: '' } }] }));
  takeChunk(message, chunk({ tool_calls: [{ index: 0, function: { arguments: '{"a"' } }] }));
  takeChunk(message, chunk({ tool_calls: [{ index: 0, function: { arguments: ':1}' } }] }));
  takeChunk(message, chunk({}, { finish_reason: 'tool_calls' }));
  takeChunk(message, { choices: [], usage: { prompt_tokens: 9, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 4 } } });
  assert.deepEqual(message, { content: 'Hello', reasoning: 'hm', calls: [{ id: 'c', name: 'f', arguments: '{"a":1}' }],
                              finish: 'tool_calls', figures: { prompt: 9, tokens: 5, cached: 4, reasoning: 0 } });
});

test('the speed leaves the prompt out', () => {
  const figures = { tokens: 11 };
  takeTimes(figures, 1000, 3000, 3500);
  assert.equal(figures.first, 2);
  assert.equal(figures.speed, 20);
  const atOnce = { tokens: 112 };
  takeTimes(atOnce, 1000, 1081, 1081.4);
  assert.equal(atOnce.speed, undefined);
  const nothing = { tokens: 0 };
  takeTimes(nothing, 0, null, 0);
  assert.deepEqual(nothing, { tokens: 0 });
});

test('the figures of an answer that went on are of all of it', () => {
  assert.deepEqual(addFigures({}, { prompt: 5, tokens: 3 }), { prompt: 5, tokens: 3 });
  assert.deepEqual(addFigures({ prompt: 10, cached: 2, tokens: 40, reasoning: 4, first: 2, speed: 20 },
                              { prompt: 50, cached: 48, tokens: 20, reasoning: 0, first: 0.1, speed: 5 }),
                   { prompt: 10, cached: 2, tokens: 60, reasoning: 4, first: 2, speed: 10 });
  assert.deepEqual(addFigures({ first: 2 }, { prompt: 50, cached: 48, tokens: 20, first: 0.1 }),
                   { prompt: 50, cached: 48, tokens: 20, first: 2 }); // it was stopped: no figures came
  assert.deepEqual(addFigures({ prompt: 10, tokens: 40, first: 2 }, { first: 0.1 }), { first: 2 });
});

/** Answers one fetch with these pieces of a body. */
function serve(status, pieces, headers = {}) {
  globalThis.fetch = async () => new Response(new ReadableStream({ start(controller) {
    for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece));
    controller.close();
  } }), { status, headers });
}

async function answerTo(status, pieces, headers) {
  serve(status, pieces, headers);
  const message = emptyAnswer();
  await streamAnswer({}, message, new AbortController().signal, () => {});
  return message;
}

const event = (data) => `data: ${JSON.stringify(data)}\n\n`;

test('an answer that ends as it should', async () => {
  const message = await answerTo(200, [event(chunk({ content: 'a' })), ': wait\n\n', event(chunk({}, { finish_reason: 'stop' })),
                                       'data: [DONE]\n\n']);
  assert.deepEqual([message.content, message.finish, message.error], ['a', 'stop', '']);
});

test('an answer that breaks off says why, and keeps its text', async () => {
  const cut = await answerTo(200, [event(chunk({ content: 'a' }))]);
  assert.deepEqual([cut.content, cut.error], ['a', 'the connection ended before the answer did']);
  const failed = await answerTo(200, [event(chunk({ content: 'a' })), event({ error: { message: 'the worker died' } })]);
  assert.deepEqual([failed.content, failed.error], ['a', 'the worker died']);
  const refused = await answerTo(400, ['{"error":{"message":"a number is expected","param":"top_p"}}']);
  assert.equal(refused.error, 'top_p: a number is expected');
  const proxy = await answerTo(502, ['<h1>Bad gateway</h1>']);
  assert.equal(proxy.error, '<h1>Bad gateway</h1>');
  const busy = await answerTo(503, ['{"error":{"message":"too many requests"}}'], { 'Retry-After': '7' });
  assert.equal(busy.error, 'too many requests (the server asks to wait 7 s)');
});

// ---- Combinations of keys ----

test('a character that is written is no combination', () => {
  const press = (fields) => ({ altKey: true, ctrlKey: false, metaKey: false, code: 'KeyN', key: 'n', ...fields });
  assert.equal(shortcutOf(press({}), false), 'KeyN');
  assert.equal(shortcutOf(press({ key: '\u0442' }), false), 'KeyN'); // a Cyrillic layout
  for (const key of ['\u00df', '\u0119', '\u00b5', 'Dead', '\u00f1']) assert.equal(shortcutOf(press({ key }), false), null, key);
  for (const other of [{ altKey: false }, { ctrlKey: true }, { metaKey: true }]) assert.equal(shortcutOf(press(other), false), null);
  assert.equal(shortcutOf(press({}), true), null);
  assert.equal(shortcutOf(press({ key: 'Dead', ctrlKey: true }), true), 'KeyN');
  assert.deepEqual([shortcutName('N', false), shortcutName('N', true)], ['Alt+N', 'Ctrl+Option+N']);
  assert.deepEqual([{ isComposing: true }, { keyCode: 229 }, { keyCode: 13 }].map((e) => Boolean(isComposing(e))), [true, true, false]);
});

// ---- Keys ----

/** A server with an admin key, perhaps with API keys; a person who types these keys. Returns the keys that were sent. */
async function change(admin, known, typed) {
  const sent = [], session = new Map(Object.entries(known));
  globalThis.sessionStorage = { getItem: (name) => session.get(name) ?? null, setItem: (name, value) => session.set(name, value) };
  const listeners = [];
  const dialog = { showModal: () => queueMicrotask(() => {
    input.value = typed.shift() ?? '';
    dialog.returnValue = input.value ? 'ok' : '';
    listeners.pop()();
  }), addEventListener: (_, listener) => listeners.push(listener) };
  const input = { focus() {} };
  globalThis.document = { addEventListener() {}, getElementById: (id) => ({ 'key-dialog': dialog, 'key-input': input })[id] ?? {} };
  globalThis.fetch = async (_, options) => {
    const key = options.headers.Authorization?.slice('Bearer '.length) ?? '';
    sent.push(key);
    if (admin && key === admin) return new Response('{}');
    return new Response('{}', { status: !admin || key === 'user' ? 403 : 401 });
  };
  const { postAdmin } = await import(`${page}api.js`);
  await postAdmin('./moed/policy', {}).catch((error) => sent.push(`error ${error.status}`));
  return [sent, session.get('moed.adminKey')];
}

test('the admin key is asked for only where it is needed', async () => {
  assert.deepEqual(await change(null, {}, []), [['', 'error 403'], undefined]);
  assert.deepEqual(await change('a', {}, ['a']), [['', 'a'], 'a']);
  assert.deepEqual(await change('a', { 'moed.adminKey': 'a' }, []), [['a'], 'a']);
  assert.deepEqual(await change('a', { 'moed.key': 'a' }, []), [['', 'a'], undefined]);
  assert.deepEqual(await change('a', { 'moed.key': 'user' }, ['b', 'a']), [['', 'user', 'b', 'a'], 'a']);
  assert.deepEqual(await change('a', { 'moed.adminKey': 'old' }, ['']), [['old', 'error 401'], 'old']);
});

// ---- The map ----

const base64 = (values) => Buffer.from(values).toString('base64');
const MAP = { model: 'm', policy: 'lru', layers: [1, 3], experts: 3, experts_used: 1,
              place: base64([0, 1, 2, 3, 4, 4]), use: base64([0, 255, 128, 0, 0, 25]), chosen: base64([0, 1, 0, 0, 0, 0]) };

test('the map and its changes', () => {
  const map = new PlacementMap(MAP);
  assert.deepEqual(map.counts(), [1, 1, 1, 1, 2]);
  assert.deepEqual([map.step, new PlacementMap({ ...MAP, step: 7 }).step], [0, 7]);
  assert.equal(map.describe(0, 1), 'Layer 1, expert 1: host memory, in 100 % of recent steps, chosen by the latest step');
  assert.equal(map.describe(1, 0), 'Layer 3, expert 0: partly on the device, not used lately');
  assert.equal(map.describe(1, 2), 'Layer 3, expert 2: wholly on the device, in 1.0 % of recent steps');
  map.apply({ step: 5, cells: [[1, 4, 0, 0], [6, 1, 1, 1], [-1, 1, 1, 1], [0, 9, 255, 1]] });
  assert.equal(map.step, 5);
  assert.deepEqual([...map.place], [4, 4, 2, 3, 4, 4]);
  assert.deepEqual([...map.chosen], [1, 0, 0, 0, 0, 0]);
  assert.throws(() => new PlacementMap({ ...MAP, use: base64([1]) }), /use has 1 cells, not 6/);
});

test('labels leave space', () => {
  assert.equal(labelStep(30, 30), 1);
  assert.equal(labelStep(4, 30), 10);
  assert.equal(labelStep(13, 30), 5);
});

// ---- Numbers ----

test('numbers', () => {
  assert.equal(bytes(0), '0 B');
  assert.equal(bytes(23257280), '23.3 MB');
  assert.equal(bytes(999999), '1.00 MB');
  assert.equal(scaled(1500, 'B/s'), '1.50 kB/s');
  assert.equal(percent(0.5), '50 %');
  assert.equal(percent(0.0123), '1.2 %');
  assert.equal(seconds(0.25), '250 ms');
  assert.equal(seconds(2), '2.0 s');
  assert.equal(answerFigures({ figures: { tokens: 1, prompt: 1200, cached: 64, first: 0.2, speed: 31.24 }, finish: 'length' }),
               '1 token \u00b7 31.2 tokens/s \u00b7 first after 200 ms \u00b7 prompt 1,200 tokens, 64 cached \u00b7 ended at the limit of tokens');
});

test('how far a prompt is', () => {
  const at = (processed, time_ms) => ({ processed, time_ms, total: 4000 });
  assert.equal(promptProgress(undefined, 0.9), '');
  assert.equal(promptProgress(undefined, 12.3), 'no token yet after 12 s');
  assert.equal(promptProgress({ first: at(1000, 400), latest: at(1000, 400) }, 0.5), 'prompt: 1,000 of 4,000 tokens');
  assert.equal(promptProgress({ first: at(1000, 400), latest: at(2000, 1400) }, 2), 'prompt: 2,000 of 4,000 tokens after 2 s, about 2 s left');
  assert.equal(promptProgress({ first: at(1000, 400), latest: at(2000, 400) }, 0), 'prompt: 2,000 of 4,000 tokens');
  assert.equal(promptProgress({ first: at(1000, 400), latest: at(4000, 1400) }, 0), 'prompt: 4,000 of 4,000 tokens');
});

test('a prompt that another worker begins anew has an estimate of its own', () => {
  const message = emptyAnswer();
  const shown = (processed, time_ms) => {
    takeProgress(message, { processed, time_ms, total: 4000 });
    return promptProgress(progressOf(message), 0);
  };
  shown(1000, 5000);
  assert.equal(shown(2000, 10000), 'prompt: 2,000 of 4,000 tokens, about 10 s left');
  assert.equal(shown(500, 100), 'prompt: 500 of 4,000 tokens');
  assert.equal(shown(1000, 200), 'prompt: 1,000 of 4,000 tokens, about 1 s left');
  assert.ok(!JSON.stringify(message).includes('4000'), 'no report is stored');
});
