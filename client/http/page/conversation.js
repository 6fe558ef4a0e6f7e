// A conversation is a tree: an edited question or a regenerated answer is a sibling of the one before it. `chosen` names
// the child that is shown of each message that has several; the key '' stands for the beginning.
//
// Message: {id, parent, role, content, reasoning, calls: [{id, name, arguments}], call, model, figures, finish, error, version}
// (`call`: of a tool's result, the id of its call; `version` counts the writes of an answer).

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

export function newConversation(settings = {}) {
  const now = Date.now();
  return { id: newId(), title: '', created: now, updated: now, settings, messages: {}, chosen: {} };
}

/** The messages with this parent, oldest first. */
export function childrenOf(conversation, parent) {
  return Object.values(conversation.messages).filter((m) => m.parent === parent);
}

/** The messages that are shown, from the first to the last. */
export function shownPath(conversation) {
  const path = [];
  for (let id = conversation.chosen['']; id; id = conversation.chosen[id]) {
    const message = conversation.messages[id];
    if (!message || path.includes(message)) break;
    path.push(message);
  }
  return path;
}

/** The messages from the first one to this one. */
export function pathTo(conversation, id) {
  const path = [];
  for (let m = conversation.messages[id]; m && !path.includes(m); m = conversation.messages[m.parent]) path.unshift(m);
  return path;
}

/** Adds a message below `parent` ('': at the beginning) and shows it. */
export function appendMessage(conversation, parent, fields) {
  const message = { id: newId(), parent, role: 'user', content: '', ...fields };
  conversation.messages[message.id] = message;
  conversation.chosen[parent] = message.id;
  conversation.updated = Date.now();
  if (!conversation.title && message.role === 'user') conversation.title = titleOf(message.content);
  return message;
}

export function titleOf(text) {
  const line = text.trim().split('\n', 1)[0];
  return line.length > 60 ? `${line.slice(0, 57)}...` : line;
}

/** Where a message stands among its siblings: {index, siblings}. */
export function branchOf(conversation, message) {
  const siblings = childrenOf(conversation, message.parent);
  return { index: siblings.indexOf(message), siblings };
}

/** The messages with each parent: {parent: [message]}. */
export function childrenByParent(conversation) {
  const children = new Map();
  for (const message of Object.values(conversation.messages)) {
    if (children.has(message.parent)) children.get(message.parent).push(message);
    else children.set(message.parent, [message]);
  }
  return children;
}

/** Shows the sibling that is `step` further. */
export function switchBranch(conversation, message, step) {
  const { index, siblings } = branchOf(conversation, message);
  const next = siblings[index + step];
  if (next) conversation.chosen[message.parent] = next.id;
}

/** Takes over what another tab has made of this conversation: messages that are not here, and later versions of those that
 * are. Of title and settings the later change (`edited`) counts; the shown branch stays. Returns whether anything is new. */
export function mergeInto(conversation, other) {
  let news = false;
  for (const [id, theirs] of Object.entries(other.messages)) {
    const ours = conversation.messages[id];
    if (ours && (ours.version ?? 0) >= (theirs.version ?? 0)) continue;
    conversation.messages[id] = ours ? Object.assign(ours, theirs) : theirs;
    news = true;
  }
  conversation.chosen = { ...other.chosen, ...conversation.chosen };
  if ((other.edited ?? 0) > (conversation.edited ?? 0)) {
    const { title, settings, edited } = other;
    Object.assign(conversation, { title, settings, edited });
    news = true;
  }
  conversation.title ||= other.title ?? '';
  conversation.updated = Math.max(conversation.updated, other.updated ?? 0);
  return news;
}

/** A message as the API takes it. */
function requestMessage(message) {
  if (message.role === 'tool') return { role: 'tool', tool_call_id: message.call, content: message.content };
  const out = { role: message.role, content: message.content };
  if (message.role === 'assistant' && message.reasoning) out.reasoning_content = message.reasoning;
  if (message.calls?.length) {
    out.tool_calls = message.calls.map((call) => ({
      id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments },
    }));
  }
  return out;
}

/** An answer of which nothing arrived. */
export function isEmptyAnswer(message) {
  return message.role === 'assistant' && !message.content && !message.reasoning && !message.calls?.length;
}

/** The `messages` of a request whose answer follows the message `last`. A question without an answer is left out with it: a
 * template would make an empty turn of it, and a question that was too long would fail again. */
export function requestMessages(conversation, last) {
  const path = [];
  for (const message of pathTo(conversation, last)) {
    if (!isEmptyAnswer(message)) path.push(message);
    else if (path.at(-1)?.role === 'user') path.pop();
  }
  const messages = path.map(requestMessage);
  const system = conversation.settings.system?.trim();
  return system ? [{ role: 'system', content: system }, ...messages] : messages;
}

/** The calls of a message that have no result below it yet. */
export function openCalls(conversation, message) {
  const answered = new Set(shownPath(conversation).filter((m) => m.role === 'tool').map((m) => m.call));
  return (message.calls ?? []).filter((call) => !answered.has(call.id));
}

/** True if every word of the query is somewhere in the conversation. */
export function matches(conversation, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const text = [conversation.title, conversation.settings.system ?? '',
                ...Object.values(conversation.messages).map((m) => m.content)].join('\n').toLowerCase();
  return words.every((word) => text.includes(word));
}
