// Dialogs that the gateway asks for: one on screen at a time, kept there while the socket is lost.
import type { Context, Json } from "./pi.ts";

const REPEAT = 10_000; // ms in which the gateway asks again what it still wants to know

interface Open { end: AbortController; answer: Promise<Json>; wanted: boolean; settled: boolean }

export class Dialogs {
  #open = new Map<string, Open>();
  #last: Promise<unknown> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;

  /** The answer to `ui/ask`. `shown` is told at once. */
  ask(ctx: Context | undefined, { ask, kind, args }: Json, shown: (queued: boolean) => void): Promise<Json> {
    let open = this.#open.get(ask);
    shown(!open && [...this.#open.values()].some((other) => !other.settled));
    if (!open) {
      if (!ctx?.hasUI) return Promise.resolve({ unavailable: true });
      const end = new AbortController();
      const answer = this.#last.then(() => (end.signal.aborted ? { cancelled: true } : show(ctx, kind, args, end.signal)));
      this.#last = answer.catch(() => {});
      open = { end, answer, wanted: true, settled: false };
      this.#open.set(ask, open);
      this.#last.then(() => (open!.settled = true));
    }
    open.wanted = true;
    return open.answer;
  }

  close(ask: string): void {
    this.#open.get(ask)?.end.abort();
    this.#open.delete(ask);
  }

  /** The answer has gone out: a repeated question would be a new one. */
  sent(ask: string): void { this.#open.delete(ask); }

  /** After `hello`: what is not asked again soon is of no interest any more. */
  reconnected(): void {
    for (const open of this.#open.values()) open.wanted = false;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      for (const [ask, open] of this.#open) if (!open.wanted) this.close(ask);
    }, REPEAT).unref();
  }

  closeAll(): void {
    clearTimeout(this.#timer);
    for (const ask of this.#open.keys()) this.close(ask);
  }
}

async function show(ctx: Context, kind: string, args: Json, signal: AbortSignal): Promise<Json> {
  if (kind === "confirm") return { confirmed: await ctx.ui.confirm(args.title, args.message, { signal }) };
  const value =
    kind === "select" ? await ctx.ui.select(args.title, args.options, { signal })
    : kind === "input" ? await ctx.ui.input(args.title, args.placeholder, { signal })
    : kind === "editor" ? await ctx.ui.editor(args.title, args.prefill)
    : null;
  if (value === null) return { unavailable: true };
  return value === undefined ? { cancelled: true } : { value };
}
