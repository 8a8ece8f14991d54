// One call of `streamSimple`: events of the gateway become a message of Pi.
import { randomUUID } from "node:crypto";
import type { Json } from "./pi.ts";

const NO_USAGE = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } };

/** Pi's AssistantMessageEventStream: an async iterable with a `result`. */
class Stream {
  #queue: Json[] = [];
  #wake = () => {};
  #closed = false;
  #settled = Promise.withResolvers<Json>();
  result(): Promise<Json> { return this.#settled.promise; }
  push(event: Json): void { this.#queue.push(event); this.#wake(); }
  end(message: Json): void { this.#closed = true; this.#settled.resolve(message); this.#wake(); }
  async *[Symbol.asyncIterator](): AsyncGenerator<Json> {
    for (;;) {
      while (this.#queue.length > 0) yield this.#queue.shift()!;
      if (this.#closed) return;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }
}

export class Turn {
  id: string = randomUUID();
  stream = new Stream();
  params: Json;
  message: Json;
  ended = false; // Pi keeps the message object in its transcript: nothing may touch it any more
  asked = false; // the gateway may have heard of it
  #seq = 0;
  #base = 0; // blocks before the gateway began anew
  #open = -1; // the block that is not complete
  #onEnd: (end: Json) => void;

  constructor(model: Json, params: Json, onEnd: (end: Json) => void) {
    this.params = { turn: this.id, ...params };
    this.#onEnd = onEnd;
    const { api, provider, id } = model;
    this.message = { role: "assistant", content: [], api, provider, model: id, responseId: this.id, usage: NO_USAGE, stopReason: "stop", timestamp: Date.now() };
    this.#push("start");
  }

  /** Parameters of `turn/resume`. */
  known(): Json {
    const blocks = this.message.content.slice(this.#base).map((block: Json) => ({ type: block.type, chars: block[block.type].length }));
    return { turn: this.id, session: this.params.session, seq: this.#seq, blocks, calls: [] };
  }

  /** The gateway does not know the turn: what it sends from now on begins at nought. */
  restart(): void {
    this.#close();
    this.#seq = 0;
    this.#base = this.message.content.length;
  }

  event({ seq, op, i, type, text }: Json): void {
    if (this.ended || seq <= this.#seq) return;
    this.#seq = seq;
    const at = this.#base + i, content: Json[] = this.message.content;
    if (op === "open") {
      this.#open = at;
      content[at] = { type, [type]: "" };
      this.#push(`${type}_start`, { contentIndex: at });
    } else if (op === "delta") {
      const block = content[at]!;
      block[block.type] += text;
      this.#push(`${block.type}_delta`, { contentIndex: at, delta: text });
    } else if (op === "close") this.#close();
  }

  /** `turn/end`, or an end of the same shape for a turn that the gateway cannot end. */
  end(end: Json): void {
    if (this.ended) return;
    for (const [i, text] of Object.entries(end.texts ?? {})) {
      const block = this.message.content[this.#base + Number(i)];
      if (block) block[block.type] = text;
    }
    this.#close();
    this.ended = true;
    const { stop, usage = NO_USAGE, raw_stop, error } = end, failed = stop === "error" || stop === "aborted";
    Object.assign(this.message, { stopReason: stop, usage }, raw_stop && { rawStopReason: raw_stop }, failed && { errorMessage: error || "Request was aborted" });
    this.#push(failed ? "error" : "done", { reason: stop, [failed ? "error" : "message"]: this.message });
    this.stream.end(this.message);
    this.#onEnd(end);
  }

  #close(): void {
    const block = this.message.content[this.#open];
    if (block) this.#push(`${block.type}_end`, { contentIndex: this.#open, content: block[block.type] });
    this.#open = -1;
  }

  #push(type: string, more: Json = {}): void { this.stream.push({ type, ...more, partial: this.message }); }
}
