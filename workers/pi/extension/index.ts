// Grok Build as a provider of Pi. This half relays; every decision is the gateway's (docs/pi-protocol.md).
import { Dialogs } from "./dialogs.ts";
import { Link, Passing } from "./link.ts";
import { renderEntry } from "./render.ts";
import { agentDir, type Json, loadModels, SHIPPED } from "./settings.ts";
import { Turn } from "./turn.ts";

export default function grok(pi: Json): void {
  try {
    if (!globalThis.WebSocket) throw new Error(`it needs Node.js 22 or newer, this is ${process.version}`);
    new Extension(pi);
  } catch (error) { // an extension that throws while it loads ends Pi for every model
    const text = `Grok is not available in this Pi: ${(error as Error).message}.`;
    console.error(`${text} \`grok-gateway pi uninstall\` takes the extension out.`);
  }
}

class Extension extends Link {
  #pi: Json;
  #ctx: Json = {}; // Pi's context of the session on screen
  #dialogs = new Dialogs();
  #turns = new Map<string, Turn>(); // that run
  #delivered: string | undefined; // the newest entry of the session on screen that Grok knows

  constructor(pi: Json) {
    super();
    this.#pi = pi;
    // Pi gives all of Node a proxy when HTTP_PROXY is set; the gateway is on this machine.
    const direct = [process.env.no_proxy ?? process.env.NO_PROXY, "127.0.0.1", "localhost", "[::1]"];
    process.env.no_proxy = process.env.NO_PROXY = direct.filter(Boolean).join(",");
    pi.registerProvider("grok", {
      name: "Grok Build", baseUrl: "grok-gateway", apiKey: "grok-gateway", api: "grok-acp", models: loadModels(),
      streamSimple: (model: Json, context: Json, options?: Json) => this.#stream(model, context, options ?? {}),
    });
    for (const type of ["grok-tool", "grok-turn"]) pi.registerEntryRenderer?.(type, renderEntry);
    pi.registerCommand("grok", {
      description: "Grok Build: debug, perms",
      getArgumentCompletions: (typed: string) => SHIPPED.commands.filter(({ value }) => value.startsWith(typed)),
      handler: (text: string) => this.#command(text),
    });
    pi.on("session_start", (_event: Json, ctx: Json) => {
      this.#ctx = ctx;
      if (this.#isGrok) this.ready().catch(() => {}); // the first turn tries again, and says what is wrong
    });
    pi.on("session_tree", () => this.#show("tree").catch(() => {})); // without a socket there is nobody to tell
    pi.on("session_before_compact", ({ reason }: Json) => // Grok compacts its history by itself
      this.#isGrok && ["threshold", "overflow"].includes(reason) ? { cancel: true } : undefined);
    pi.on("session_shutdown", () => {
      this.notify("session/close", { session: this.#session });
      this.#dialogs.closeAll();
      this.close();
    });
  }

  get #session(): string | undefined { return this.#ctx.sessionManager?.getSessionId(); }
  get #isGrok(): boolean { return this.#ctx.model?.provider === "grok"; }

  protected async introduce(conn: string): Promise<string> {
    const env = Object.entries(process.env).filter(([name]) => name.startsWith("PI_GROK_"));
    const welcome = await this.request("hello", {
      v: 1, program: process.argv[1], mode: this.#ctx.mode, ui: this.#ctx.hasUI ?? false,
      caps: this.#pi.registerEntryRenderer ? ["entries", "renderers"] : ["entries"],
      agent_dir: agentDir(), env: Object.fromEntries(env), asks: this.#dialogs.asks, conn: conn || undefined,
    });
    if (welcome.notice) this.#say(welcome.notice, "warning");
    await this.#show("connect");
    return welcome.conn;
  }

  protected lost(): void {
    this.#dialogs.closeAll();
    this.#ctx.ui?.setStatus("grok", undefined);
  }

  protected methods: Link["methods"] = {
    "turn/event": (params) => this.#turns.get(params.turn)?.event(params),
    "ui/ask": (params) => {
      this.notify("ui/shown", { ask: params.ask });
      return this.#dialogs.ask(this.#ctx, params);
    },
    "ui/close": ({ ask }) => this.#dialogs.close(ask),
    "ui/notify": ({ message, level }) => this.#say(message, level),
    "ui/status": ({ text }) => this.#ctx.ui?.setStatus("grok", text),
    entry: ({ session, id, type, data }) => {
      if (session !== this.#session) return { not_current: true };
      const entries: Json[] = this.#ctx.sessionManager.getEntries();
      const known = entries.some((entry) => entry.customType === type && entry.data?.id === id);
      if (!known) this.#pi.appendEntry(type, data);
      return { ok: true };
    },
    wake: ({ session, id, text }) => {
      const started = session === this.#session && this.#isGrok && this.#ctx.isIdle();
      const message = { customType: "grok-wake", content: text, display: false, details: { id } };
      if (started) this.#pi.sendMessage(message, { triggerTurn: true });
      return { started };
    },
  };

  /** Tell the gateway which session is on screen. */
  async #show(reason: string): Promise<void> {
    const branch: Json[] = this.#ctx.sessionManager?.getBranch() ?? [];
    const binding = branch.findLast(({ customType }) => customType === "grok-session")?.data;
    const active = this.#pi.getActiveTools(), session = this.#session;
    const params = { session, cwd: this.#ctx.cwd, reason, binding, active };
    this.#delivered = session && (await this.request("session", params)).delivered;
  }

  #stream(model: Json, context: Json, { sessionId, cacheRetention, reasoning, signal }: Json): Turn["stream"] {
    const side = sessionId === undefined || cacheRetention === "none";
    const turn = new Turn(model, {
      kind: side ? "side" : "turn", session: side ? undefined : sessionId, effort: reasoning,
      cwd: this.#ctx.cwd ?? process.cwd(), active: this.#pi.getActiveTools(),
      system_prompt: context.systemPrompt, messages: context.messages, // Pi 1.x has one among the others
      entries: !side && sessionId === this.#session ? this.#ctx.sessionManager.getBranch().map(outline) : undefined,
    });
    signal?.addEventListener("abort", () => this.#abort(turn), { once: true });
    if (signal?.aborted) this.#abort(turn);
    void this.#run(turn);
    return turn.stream;
  }

  /** Have a turn answered, by asking again after each lost socket. */
  async #run(turn: Turn): Promise<void> {
    this.#turns.set(turn.id, turn);
    while (!turn.ended) {
      try {
        await this.ready();
        if (turn.ended) break;
        const end = await this.request("turn", { ...sinceThen(turn.params, this.#delivered), ...turn.known() });
        if (turn.params.entries) this.#delivered = end.delivered;
        if (end.need !== "all") turn.end(end);
      } catch (error) {
        if (!(error instanceof Passing)) turn.end({ stop: "error", error: (error as Error).message });
      }
    }
    this.#turns.delete(turn.id);
  }

  #abort(turn: Turn): void {
    if (!turn.ended) this.notify("turn/abort", { turn: turn.id, session: turn.params.session });
    turn.end({ stop: "aborted" });
  }

  async #command(text: string): Promise<void> {
    const asked = this.ready().then(() => this.request("command", { session: this.#session, text }));
    const { notice, level } = await asked.catch(({ message }: Error) => ({ notice: message, level: "error" }));
    this.#say(notice, level);
  }

  #say(text: string, level: string): void {
    if (this.#ctx.hasUI) this.#ctx.ui.notify(text, level);
    else console.error(text);
  }
}

/** Only what has come after an entry that Grok knows, where messages and entries can be told apart there. */
function sinceThen(params: Json, since: string | undefined): Json {
  const entries: Json[] = params.entries ?? [], messages: Json[] = params.messages;
  const known = entries.findLastIndex(({ id }) => id === since);
  const at = messages.findLastIndex(({ timestamp }) => timestamp === entries[known]?.ts);
  if (known < 0 || at < 0) return params;
  return { ...params, since, entries: entries.slice(known + 1), messages: messages.slice(at + 1) };
}

/** An entry of the branch: messages reach a provider without their ids, and are joined with entries by time. */
function outline({ id, type, message, customType, timestamp, details }: Json): Json {
  const ts = message?.timestamp ?? Date.parse(timestamp), wake = customType === "grok-wake";
  return { id, type, role: message?.role, customType, ts, details: wake ? details : undefined };
}
