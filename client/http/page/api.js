// Requests to this server. Where it wants an API key, the page asks for it once and keeps it for this tab.
import { askForKey, isKey } from './key.js';

const KEY = 'moed.key';
const ADMIN_KEY = 'moed.adminKey';

export class ApiError extends Error {
  constructor(status, message, retrySeconds = 0) {
    super(message);
    this.status = status;
    this.retrySeconds = retrySeconds;
  }
}

function stored(name) {
  try {
    const key = sessionStorage.getItem(name);
    return key && isKey(key) ? key : null;
  } catch {
    return null;
  }
}

function keep(name, value) {
  try {
    if (value) sessionStorage.setItem(name, value);
    else sessionStorage.removeItem(name);
  } catch {
    // forbidden: the key is asked for again
  }
}

/** The text of an error's reply: its message in the form of any of the APIs. */
async function errorOf(response) {
  const text = await response.text().catch(() => '');
  let message = text.slice(0, 300);
  try {
    const body = JSON.parse(text);
    message = body.error?.message ?? body.error ?? message;
    if (body.error?.param) message = `${body.error.param}: ${message}`;
  } catch {
    // not JSON: a proxy's page
  }
  return new ApiError(response.status, String(message || `the server answered ${response.status}`),
                      Number(response.headers.get('Retry-After')) || 0);
}

async function send(path, options, key) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  try {
    return await fetch(path, { ...options, headers, cache: 'no-store', credentials: 'same-origin' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'the server does not answer');
  }
}

async function request(path, options) {
  let key = stored(KEY);
  let response = await send(path, options, key);
  while (response.status === 401) {
    key = await askForKey('API key', 'This server needs an API key.', key !== null);
    if (!key) throw await errorOf(response);
    response = await send(path, options, key);
    if (response.status !== 401) keep(KEY, key);
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

function jsonBody(body, signal) {
  return { method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' }, signal };
}

/** GET, as JSON. */
export async function getJson(path) {
  return (await request(path, {})).json();
}

/** POST, as JSON. */
export async function postJson(path, body, signal) {
  return (await request(path, jsonBody(body, signal))).json();
}

/** POST or, without a body, GET whose reply is a stream. */
export async function openStream(path, body, signal) {
  return request(path, body ? jsonBody(body, signal) : { signal });
}

/** Returns the error of a POST with this key, or null. */
async function attempt(path, body, key) {
  const response = await send(path, jsonBody(body), key);
  return response.ok ? null : errorOf(response);
}

/** POST that needs an admin key. The API key may be one; else it is asked for, and kept for this tab. */
export async function postAdmin(path, body) {
  let key = stored(ADMIN_KEY);
  let error = await attempt(path, body, key);
  if (error?.status === 403 && !key) throw error; // this server has no admin keys
  if (error && !key && stored(KEY)) error = await attempt(path, body, stored(KEY));
  while (error?.status === 401 || error?.status === 403) {
    key = await askForKey('Admin key', 'Changing a deployment needs an admin key.', key !== null);
    if (!key) throw new ApiError(401, 'no admin key was given');
    error = await attempt(path, body, key);
    if (!error) keep(ADMIN_KEY, key);
  }
  if (error) throw error;
}
