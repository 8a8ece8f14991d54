// One call of `streamSimple`: events of the gateway become a message of Pi.
import { randomUUID } from "node:crypto";
import type { Json } from "./pi.ts";

const NOTHING = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } };

/** Pi's AssistantMessageEventStream, which is an async iterable with a `result`. */
export class Stream {
  #queue: Json[] = [];
  #wake = () => {};
  #closed = false;
  #resolve!: (message: Json) => void;
  #result = new Promise<Json>((resolve) => (this.#resolve = resolve));
  result(): Promise<Json> { return this.#result; }
  push(event: Json): void { this.#queue.push(event); this.#wake(); }
  end(message: Json): void { this.#closed = true; this.#resolve(message); this.#wake(); }
  async *[Symbol.asyncIterator](): AsyncGenerator<Json> {
    for (;;) {
      for (let event; (event = this.#queue.shift()); ) yield event;
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
  ended = false; // Pi keeps the message object in its transcript: nothing may touch it afterwards
  asked = false; // the gateway may have heard of it
  #seq = 0;
  #base = 0; // blocks of an earlier try, if the gateway begins anew
  #onEnd: (end: Json) => void;

  constructor(model: Json, params: Json, onEnd: (end: Json) => void) {
    this.params = { turn: this.id, ...params };
    this.#onEnd = onEnd;
    this.message = { role: "assistant", content: [], api: model.api, provider: model.provider, model: model.id, responseId: this.id, usage: NOTHING, stopReason: "stop", timestamp: Date.now() };
    this.#push("start", {});
  }

  /** Params of `turn/resume`. */
  resume(): Json {
    const blocks: Json[] = this.message.content.slice(this.#base);
    const texts = blocks.filter((block) => block.type !== "toolCall");
    return {
      turn: this.id, session: this.params.session, seq: this.#seq,
      blocks: texts.map((block) => ({ type: block.type, chars: block[field(block)].length })),
      calls: blocks.filter((block) => block.type === "toolCall").map((block) => block.id),
    };
  }

  /** The gateway does not know the turn: what it sends from now on begins at nought. */
  restart(): void {
    this.#closeBlock();
    this.#seq = 0;
    this.#base = this.message.content.length;
  }

  event({ seq, op, i, type, text, id, name, arguments: args }: Json): void {
    if (this.ended || seq <= this.#seq) return;
    this.#seq = seq;
    const at = this.#base + i, content: Json[] = this.message.content;
    if (op === "open") {
      content[at] = type === "text" ? { type, text: "" } : { type: "thinking", thinking: "" };
      this.#push(`${type}_start`, { contentIndex: at });
    } else if (op === "delta") {
      content[at]![field(content[at]!)] += text;
      this.#push(`${content[at]!.type}_delta`, { contentIndex: at, delta: text });
    } else if (op === "close") this.#closeBlock();
    else if (op === "call") {
      content[at] = { type: "toolCall", id, name, arguments: args };
      this.#push("toolcall_start", { contentIndex: at });
      this.#push("toolcall_delta", { contentIndex: at, delta: JSON.stringify(args) });
      this.#push("toolcall_end", { contentIndex: at, toolCall: content[at] });
    }
  }

  /** `turn/end`, or an end of the same shape for a turn that the gateway cannot end. */
  end(end: Json): void {
    if (this.ended) return;
    for (const [i, text] of Object.entries(end.texts ?? {})) {
      const block = this.message.content[this.#base + Number(i)];
      if (block) block[field(block)] = text;
    }
    this.#closeBlock();
    this.ended = true;
    const failed = end.stop === "error" || end.stop === "aborted";
    Object.assign(this.message, { stopReason: end.stop, usage: end.usage ?? this.message.usage });
    if (end.raw_stop) this.message.rawStopReason = end.raw_stop;
    if (failed) this.message.errorMessage = end.error || "Request was aborted";
    this.#push(failed ? "error" : "done", failed ? { reason: end.stop, error: this.message } : { reason: end.stop, message: this.message });
    this.stream.end(this.message);
    this.#onEnd(end);
  }

  #open = -1; // index of the block that is not complete

  #closeBlock(): void {
    const at = this.#open, block = this.message.content[at];
    this.#open = -1;
    if (block) this.#push(`${block.type}_end`, { contentIndex: at, content: block[field(block)] });
  }

  #push(type: string, more: Json): void {
    if (type.endsWith("_start") && type !== "toolcall_start") this.#open = more.contentIndex;
    this.stream.push({ type, ...more, partial: this.message });
  }
}

function field(block: Json): string { return block.type === "text" ? "text" : "thinking"; }
