// Dialogs that the gateway asks for: one on screen at a time, kept there while the socket is lost.
import type { Context, Json } from "./pi.ts";

const REPEAT = 10_000; // ms in which the gateway asks again what it still wants to know

export class Dialogs {
  #open = new Map<string, { end: AbortController; answer: Promise<Json>; wanted: boolean }>();
  #screen: Promise<unknown> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;

  /** The answer to `ui/ask`; the same `ask` again joins the dialog or has its answer. */
  ask(ctx: Context | undefined, { ask, kind, args }: Json): Promise<Json> {
    const known = this.#open.get(ask), end = new AbortController();
    if (known) known.wanted = true;
    if (known || !ctx?.hasUI) return known?.answer ?? Promise.resolve({ unavailable: true });
    const answer = this.#screen.then(() => (end.signal.aborted ? { cancelled: true } : show(ctx, kind, args, end)));
    this.#screen = answer.catch(() => {});
    this.#open.set(ask, { end, answer, wanted: true });
    return answer;
  }

  queued(ask: string): boolean { return this.#open.size > (this.#open.has(ask) ? 1 : 0); }

  /** It is of no interest any more: answered and told, or withdrawn. */
  close(ask: string): null {
    this.#open.get(ask)?.end.abort();
    this.#open.delete(ask);
    return null;
  }

  closeAll(): void {
    clearTimeout(this.#timer);
    for (const ask of this.#open.keys()) this.close(ask);
  }

  /** After `hello`: what is not asked again soon is withdrawn. */
  reconnected(): void {
    for (const dialog of this.#open.values()) dialog.wanted = false;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#open.forEach(({ wanted }, ask) => wanted || this.close(ask)), REPEAT).unref();
  }
}

async function show({ ui }: Context, kind: string, args: Json, { signal }: AbortController): Promise<Json> {
  if (kind === "confirm") return { confirmed: await ui.confirm(args.title, args.message, { signal }) };
  if (!["select", "input", "editor"].includes(kind)) return { unavailable: true };
  const value = kind === "select" ? await ui.select(args.title, args.options, { signal })
    : kind === "input" ? await ui.input(args.title, args.placeholder, { signal }) : await ui.editor(args.title, args.prefill);
  return value === undefined ? { cancelled: true } : { value };
}
