// One answer of the model: the stream of /v1/chat/completions collected into a message, with its figures.
import { openStream, ApiError } from './api.js';
import { responseEvents } from './event_stream.js';

/** Adds a chunk's calls to the message's: the first chunk of a call has its name, later ones more of its arguments. */
function takeCalls(message, deltas) {
  message.calls ??= [];
  for (const delta of deltas) {
    const call = (message.calls[delta.index] ??= { id: '', name: '', arguments: '' });
    if (delta.id) call.id = delta.id;
    if (delta.function?.name) call.name = delta.function.name;
    call.arguments += delta.function?.arguments ?? '';
  }
}

/** Takes one chunk of the stream. Returns true if it has something to show. */
export function takeChunk(message, chunk) {
  const choice = chunk.choices?.[0];
  const delta = choice?.delta ?? {};
  const reasoning = delta.reasoning_content ?? delta.reasoning ?? '';
  if (chunk.usage) takeUsage(message.figures, chunk.usage);
  if (chunk.model) message.model = chunk.model;
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  message.content += delta.content ?? '';
  message.reasoning += reasoning;
  if (delta.tool_calls) takeCalls(message, delta.tool_calls);
  return Boolean(delta.content || reasoning || delta.tool_calls);
}

const progress = new WeakMap(); // of a message; not in it, for a stored report is not followed by others

/** How far the prompt of a message is: the first report and the latest, {processed, total, time_ms} each. */
export function progressOf(message) {
  return progress.get(message);
}

/** If a worker fails, another one begins the prompt anew. */
export function takeProgress(message, report) {
  const before = progress.get(message);
  const goesOn = before && report.processed >= before.latest.processed && report.time_ms >= before.latest.time_ms;
  progress.set(message, { first: goesOn ? before.first : report, latest: report });
}

function takeUsage(figures, usage) {
  figures.prompt = usage.prompt_tokens;
  figures.tokens = usage.completion_tokens;
  figures.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  figures.reasoning = usage.completion_tokens_details?.reasoning_tokens ?? 0;
}

/** An answer that arrives within less has no speed: the browser read it in one go, or its clock is too coarse. */
const LEAST_MS = 20;

/** Times in seconds. The speed counts the tokens after the first, so that the prompt has no part in it. */
export function takeTimes(figures, begin, first, last) {
  if (first === null) return;
  figures.first = (first - begin) / 1000;
  if (figures.tokens > 1 && last - first >= LEAST_MS) figures.speed = (figures.tokens - 1) / ((last - first) / 1000);
}

/** The figures of an answer with its continuation. The continuation's prompt has the earlier part in it, so where that part's
 * tokens are not known (it was stopped), the prompt's figures are the continuation's. */
export function addFigures(earlier, later) {
  const sum = { ...later };
  if (earlier.first !== undefined) sum.first = earlier.first;
  if (earlier.tokens === undefined || later.tokens === undefined) return sum;
  sum.tokens = earlier.tokens + later.tokens;
  sum.reasoning = (earlier.reasoning ?? 0) + (later.reasoning ?? 0);
  Object.assign(sum, { prompt: earlier.prompt, cached: earlier.cached });
  if (earlier.speed && later.speed) sum.speed = sum.tokens / (earlier.tokens / earlier.speed + later.tokens / later.speed);
  return sum;
}

/** Asks, and fills the message while the answer arrives; `shown` is called after each change. Errors stand in the message;
 * what has arrived stays. Returns the error's status (0: of the connection), or null. */
export async function streamAnswer(body, message, signal, shown) {
  const begin = performance.now();
  let first = null, last = begin, failed = null;
  const earlier = message.figures ?? {}; // of an answer that goes on
  message.figures = {};
  message.reasoning ??= '';
  message.finish = message.error = '';
  try {
    const request = { return_progress: true, ...body, stream: true, stream_options: { include_usage: true } };
    const response = await openStream('./v1/chat/completions', request, signal);
    for await (const event of responseEvents(response)) {
      if (event.data === '[DONE]') break;
      const chunk = JSON.parse(event.data);
      if (chunk.error) throw new ApiError(500, chunk.error.message ?? 'the answer failed');
      if (chunk.prompt_progress) {
        takeProgress(message, chunk.prompt_progress);
        shown();
      }
      if (takeChunk(message, chunk)) {
        last = performance.now();
        first ??= last;
        shown();
      }
    }
    if (!message.finish) throw new ApiError(0, 'the connection ended before the answer did');
  } catch (error) {
    if (signal.aborted) message.finish = 'stopped';
    else {
      message.error = error.message;
      if (error.retrySeconds) message.error += ` (the server asks to wait ${error.retrySeconds} s)`;
      failed = error.status ?? 0;
    }
  }
  progress.delete(message);
  takeTimes(message.figures, begin, first, last);
  message.figures = addFigures(earlier, message.figures);
  shown();
  return failed;
}
