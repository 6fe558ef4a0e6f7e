// Conversations as a file, and back. A file comes from anywhere: what it holds is copied field by field, with types checked.
import { newId, shownPath } from './conversation.js';

const FORMAT = 'moed conversations';
const ROLES = new Set(['user', 'assistant', 'tool']);

export function exportJson(conversations) {
  return JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 1);
}

/** What is shown of a conversation, as Markdown. */
export function exportMarkdown(conversation) {
  const names = { user: 'Question', assistant: 'Answer', tool: 'Result' };
  const parts = [`# ${conversation.title || 'Conversation'}`];
  if (conversation.settings.system) parts.push('## System', conversation.settings.system);
  for (const message of shownPath(conversation)) {
    parts.push(`## ${names[message.role]}`, message.content);
    for (const call of message.calls ?? []) parts.push('```json', `${call.name}(${call.arguments})`, '```');
  }
  return `${parts.join('\n\n')}\n`;
}

function text(value, what) {
  if (value === undefined || value === null) return '';
  if (typeof value !== 'string') throw new Error(`${what} is not a text`);
  return value;
}

function number(value) {
  return Number.isFinite(value) ? value : Date.now();
}

function readCall(value) {
  return { id: text(value?.id, 'a call'), name: text(value?.name, 'a call'), arguments: text(value?.arguments, 'a call') };
}

function readFigures(value) {
  const figures = {};
  for (const [name, figure] of Object.entries(value ?? {})) if (Number.isFinite(figure)) figures[name] = figure;
  return figures;
}

/** ids: of the file's messages, their new ones. */
function readMessage(id, value, ids) {
  if (!value || typeof value !== 'object') throw new Error('a message is not an object');
  if (!ROLES.has(value.role)) throw new Error(`a message has the role '${String(value.role).slice(0, 20)}'`);
  const message = {
    id: ids.get(id), parent: ids.get(value.parent) ?? '', role: value.role, content: text(value.content, 'content'),
    reasoning: text(value.reasoning, 'reasoning'), model: text(value.model, 'model'),
    finish: text(value.finish, 'finish'), error: text(value.error, 'error'), call: text(value.call, 'call'),
    figures: readFigures(value.figures),
  };
  if (Array.isArray(value.calls)) message.calls = value.calls.map(readCall);
  return message;
}

function readSettings(value) {
  const plain = Object.entries(value ?? {}).filter(([, setting]) => typeof setting === 'string');
  return Object.fromEntries(plain);
}

function readConversation(value) {
  if (!value || typeof value !== 'object' || !value.messages || typeof value.messages !== 'object') {
    throw new Error('a conversation has no messages');
  }
  const ids = new Map(Object.keys(value.messages).map((id) => [id, newId()]));
  const read = Object.entries(value.messages).map(([id, message]) => readMessage(id, message, ids));
  const messages = Object.fromEntries(read.map((message) => [message.id, message]));
  const chosen = {};
  for (const [parent, child] of Object.entries(value.chosen ?? {})) {
    const id = ids.get(child);
    if (id && messages[id].parent === (ids.get(parent) ?? '')) chosen[messages[id].parent] = id;
  }
  return {
    id: newId(), title: text(value.title, 'title').slice(0, 200), created: number(value.created),
    updated: number(value.updated), settings: readSettings(value.settings), messages, chosen,
  };
}

/** The conversations of a file, with new ids. Throws an Error that says what is wrong with it. */
export function importJson(json) {
  let file;
  try {
    file = JSON.parse(json);
  } catch {
    throw new Error('the file is not JSON');
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) {
    throw new Error('the file holds no conversations of this page');
  }
  return file.conversations.map(readConversation);
}
