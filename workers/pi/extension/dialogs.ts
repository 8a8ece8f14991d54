// Dialogs that the gateway asks for: one on screen at a time, kept there while the socket is lost.
import type { Json } from "./settings.ts";

export class Dialogs {
  #open = new Map<string, { end: AbortController; answer: Promise<Json> }>();
  #screen: Promise<unknown> = Promise.resolve();

  /** Those that are open, or wait to be. */
  get asks(): string[] { return [...this.#open.keys()]; }

  /** The answer to `ui/ask`; the same `ask` again joins the dialog or has its answer. */
  async ask(ctx: Json, { ask, kind, args }: Json): Promise<Json> {
    const known = this.#open.get(ask), end = new AbortController();
    if (known) return known.answer;
    if (!ctx.hasUI) return { unavailable: true };
    const answer = this.#screen.then(() => show(ctx, kind, args, end.signal));
    this.#screen = answer.catch(() => {});
    this.#open.set(ask, { end, answer });
    return answer;
  }

  /** It is of no interest any more: answered and told, or withdrawn. */
  close(ask: string): void {
    this.#open.get(ask)?.end.abort();
    this.#open.delete(ask);
  }

  closeAll(): void { this.asks.forEach((ask) => this.close(ask)); }
}

async function show({ ui }: Json, kind: string, args: Json, signal: AbortSignal): Promise<Json> {
  const content = args.options ?? args.message ?? args.placeholder ?? args.prefill;
  const value = signal.aborted ? undefined : await ui[kind](args.title, content, { signal });
  return value === undefined ? { cancelled: true } : { value };
}
