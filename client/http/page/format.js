// Numbers as a person reads them.

const WHOLE = new Intl.NumberFormat('en');

export function count(value, noun) {
  return `${WHOLE.format(value)} ${noun}${value === 1 ? '' : 's'}`;
}

export function seconds(value) {
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  return value < 100 ? `${value.toFixed(1)} s` : `${Math.round(value)} s`;
}

/** In powers of 1000, three digits. */
export function scaled(value, unit) {
  const prefixes = ['', 'k', 'M', 'G', 'T', 'P'];
  let power = 0;
  while (Math.abs(value) >= 999.5 && power < prefixes.length - 1) {
    value /= 1000;
    power++;
  }
  return `${power || !Number.isInteger(value) ? value.toPrecision(3) : value} ${prefixes[power]}${unit}`;
}

export function bytes(value) {
  return scaled(value, 'B');
}

export function percent(value) {
  const share = value * 100;
  return `${share > 0 && share < 9.95 ? share.toFixed(1) : Math.round(share)} %`;
}

/** What is known of an answer, in one line. */
export function answerFigures(message) {
  const f = message.figures ?? {};
  const parts = [];
  if (f.tokens !== undefined) parts.push(count(f.tokens, 'token'));
  if (f.speed !== undefined) parts.push(`${f.speed.toFixed(f.speed < 10 ? 2 : f.speed < 100 ? 1 : 0)} tokens/s`);
  if (f.first !== undefined) parts.push(`first after ${seconds(f.first)}`);
  if (f.prompt !== undefined) parts.push(`prompt ${count(f.prompt, 'token')}${f.cached ? `, ${WHOLE.format(f.cached)} cached` : ''}`);
  if (f.reasoning) parts.push(`${WHOLE.format(f.reasoning)} of reasoning`);
  const ends = { length: 'ended at the limit of tokens', stopped: 'stopped', tool_calls: 'calls tools' };
  if (ends[message.finish]) parts.push(ends[message.finish]);
  return parts.join(' \u00b7 ');
}

/** What is known before the first token. progress: answer.js's, or nothing; waited: seconds since the question. */
export function promptProgress(progress, waited) {
  const after = waited >= 1 ? ` after ${Math.floor(waited)} s` : '';
  if (!progress) return after && `no token yet${after}`;
  const { first, latest } = progress;
  const parts = [`prompt: ${WHOLE.format(latest.processed)} of ${count(latest.total, 'token')}${after}`];
  // the first report counts what was cached
  const rate = (latest.processed - first.processed) / (latest.time_ms - first.time_ms); // tokens a millisecond
  const left = (latest.total - latest.processed) / rate / 1000; // seconds
  if (left > 0 && Number.isFinite(left)) parts.push(`about ${Math.ceil(left)} s left`);
  return parts.join(', ');
}
