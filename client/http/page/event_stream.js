// The text/event-stream format, read from chunks of text that may be cut anywhere.

export class EventReader {
  #rest = '';
  #name = '';
  #data = [];

  /** Takes a chunk. Returns the events that are complete: [{name, data}]; name is '' where none was sent. */
  push(chunk) {
    const events = [];
    this.#rest += chunk;
    // a carriage return at the end may be the first half of a line's end
    const whole = this.#rest.endsWith('\r') ? this.#rest.slice(0, -1) : this.#rest;
    const lines = whole.split(/\r\n|\r|\n/);
    this.#rest = lines.pop() + this.#rest.slice(whole.length);
    for (const line of lines) {
      const event = this.#take(line);
      if (event) events.push(event);
    }
    return events;
  }

  #take(line) {
    if (line === '') return this.#end();
    const colon = line.indexOf(':');
    if (colon === 0) return null; // a comment
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.#name = value;
    else if (field === 'data') this.#data.push(value);
    return null;
  }

  #end() {
    const event = this.#data.length ? { name: this.#name, data: this.#data.join('\n') } : null;
    this.#name = '';
    this.#data = [];
    return event;
  }
}

/** The events of a fetch's response, as they arrive. */
export async function* responseEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const events = new EventReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* events.push(value);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
