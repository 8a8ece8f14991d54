// One call of `streamSimple`: events of the gateway become a message of Pi.
import { randomUUID } from "node:crypto";
import { Readable } from "node:stream";
import type { Json } from "./settings.ts";

const FREE = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 };
const NO_USAGE = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0, cost: FREE };

export class Turn {
  id: string = randomUUID();
  #settled = Promise.withResolvers<Json>();
  /** Pi's AssistantMessageEventStream: an async iterable with a `result`. */
  stream = Object.assign(new Readable({ objectMode: true, read: () => {} }), { result: () => this.#settled.promise });
  params: Json; // of `turn`
  message: Json;
  ended = false; // Pi keeps the message object in its transcript: nothing may touch it any more
  #seq = 0;

  constructor({ api, provider, id: model }: Json, params: Json) {
    this.params = { turn: this.id, model, ...params };
    this.message = {
      role: "assistant", content: [], api, provider, model, responseId: this.id,
      usage: NO_USAGE, stopReason: "stop", timestamp: Date.now(),
    };
    this.#push("start");
  }

  /** What Pi has of the message: the gateway goes on from there. */
  known(): Json {
    const size = (block: Json) => ({ type: block.type, chars: block[block.type].length });
    return { seq: this.#seq, blocks: this.message.content.map(size) };
  }

  event({ seq, op, i, type, text = "" }: Json): void {
    if (this.ended || seq <= this.#seq) return;
    this.#seq = seq;
    const block = (this.message.content[i] ??= { type, [type]: "" });
    block[block.type] += text;
    const more = op === "end" ? { content: block[block.type] } : op === "delta" ? { delta: text } : {};
    this.#push(`${block.type}_${op}`, { contentIndex: i, ...more });
  }

  /** The answer to `turn`, or an end of the same shape for a turn that the gateway cannot end. */
  end({ stop, usage = NO_USAGE, raw_stop, error, texts = {} }: Json): void {
    if (this.ended) return;
    this.ended = true;
    const failed = stop === "error" || stop === "aborted", message = this.message;
    for (const [i, text] of Object.entries(texts)) {
      const block = message.content[i];
      block[block.type] = text;
    }
    Object.assign(message, { stopReason: stop, usage, rawStopReason: raw_stop });
    if (failed) message.errorMessage = error || "Request was aborted";
    this.#push(failed ? "error" : "done", { reason: stop, [failed ? "error" : "message"]: message });
    this.stream.push(null);
    this.#settled.resolve(message);
  }

  #push(type: string, more: Json = {}): void { this.stream.push({ type, ...more, partial: this.message }); }
}
