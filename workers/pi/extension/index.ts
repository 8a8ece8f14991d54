// Grok Build as a provider of Pi. This half relays and draws; every decision is the gateway's (docs/pi-protocol.md).
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { Dialogs } from "./dialogs.ts";
import { Link } from "./link.ts";
import type { Context, Json, Pi } from "./pi.ts";
import { renderTool, renderTurn } from "./render.ts";
import { loadModels, loadSettings, piModel } from "./settings.ts";
import { Turn } from "./turn.ts";

const OLD_PI = "This Pi is older than 1.0: Grok answers, asks and can be stopped, but its tools are shown in its thoughts only. Update Pi to see more.";

export default function grok(pi: Pi): void {
  try {
    new Extension(pi).register();
  } catch (error) { // an extension that throws while it loads ends Pi for every model
    console.error(`Grok is not available in this Pi (${(error as Error).message}). Update Pi, or run \`grok-gateway pi uninstall\`.`);
  }
}

class Extension {
  #pi: Pi;
  #settings = loadSettings();
  #dialogs = new Dialogs();
  #turns = new Map<string, Turn>();
  #ctx: Context | undefined;
  #welcome: Json = {};
  #models: Json[] = [];
  #entries = new Set<string>();
  #delivered: string | undefined; // the newest entry of the session on screen that Grok knows
  #link = new Link(this.#settings, {
    hello: (conn) => this.#hello(conn),
    arrived: (welcome) => this.#arrived(welcome),
    lost: (text) => this.#lost(text),
    received: (method, params) => this.#methods[method]?.(params),
  });
  constructor(pi: Pi) { this.#pi = pi; }

  get #session(): string | undefined { return this.#ctx?.sessionManager.getSessionId(); }
  get #ui() { return this.#ctx?.hasUI ? this.#ctx.ui : undefined; }

  register(): void {
    const pi = this.#pi;
    // Pi gives all of Node a proxy when HTTP_PROXY is set; the gateway is on this machine.
    const direct = (process.env.no_proxy ?? process.env.NO_PROXY ?? "").split(",").concat("127.0.0.1", "localhost", "[::1]");
    process.env.no_proxy = process.env.NO_PROXY = [...new Set(direct)].filter(Boolean).join(",");
    this.#offer(loadModels(this.#settings.modelsFile));
    pi.registerEntryRenderer?.("grok-tool", renderTool);
    pi.registerEntryRenderer?.("grok-turn", renderTurn);
    pi.registerCommand("grok", {
      description: "Grok Build: debug, perms",
      getArgumentCompletions: (prefix: string) => this.#completions().filter(({ value }) => value.startsWith(prefix)),
      handler: (args: string, ctx: Context) => this.#command(args, ctx),
    });
    const changed = (reason: string) => (_event: Json, ctx: Context) => {
      this.#ctx = ctx;
      if (this.#link.open) this.#show(reason).catch(() => {}); // told again when the socket is back
    };
    pi.on("session_start", (_event, ctx) => {
      this.#ctx = ctx;
      for (const { customType, data } of ctx.sessionManager.getEntries()) this.#entries.add(`${customType} ${data?.id}`);
    });
    pi.on("session_shutdown", () => {
      this.#link.notify("session/close", { session: this.#session, reason: "shutdown" });
      this.#dialogs.closeAll();
      this.#link.close();
    });
    pi.on("session_tree", changed("tree"));
    pi.on("model_select", changed("change"));
    pi.on("thinking_level_select", changed("change"));
    pi.on("session_before_compact", ({ reason }) => {
      const automatic = reason === "threshold" || reason === "overflow";
      return automatic && this.#ctx?.model?.provider === "grok" && this.#welcome.veto_auto_compaction ? { cancel: true } : undefined;
    });
  }

  // -- the gateway's requests --------------------------------------------------------------------

  #methods: Record<string, (params: Json) => unknown> = {
    "turn/event": (params) => this.#turns.get(params.turn)?.event(params) ?? null,
    "turn/end": (params) => {
      this.#turns.get(params.turn)?.end(params);
      this.#turns.delete(params.turn);
      return null;
    },
    "ui/ask": async (params) => {
      this.#link.notify("ui/shown", { ask: params.ask, queued: this.#dialogs.queued(params.ask) });
      const answer = await this.#dialogs.ask(this.#ctx, params);
      if (this.#link.open) this.#dialogs.close(params.ask); // else it is asked again
      return answer;
    },
    "ui/close": (params) => this.#dialogs.close(params.ask),
    "ui/set": ({ kind, args }) => {
      if (kind === "notify") this.#ui?.notify(args.message, args.level);
      if (kind === "status") this.#ui?.setStatus(args.key, args.text ?? undefined);
      if (kind === "widget") this.#ui?.setWidget(args.key, args.lines ?? undefined);
      return null;
    },
    entry: ({ session, id, type, data }) => {
      if (session !== this.#session) return { not_current: true };
      if (!this.#entries.has(`${type} ${id}`)) this.#pi.appendEntry(type, data);
      this.#entries.add(`${type} ${id}`);
      return { ok: true };
    },
    wake: ({ session, id, text }) => {
      if (session !== this.#session) return { no: "other_session" };
      if (!this.#ui) return { no: "no_ui" };
      if (this.#ctx?.model?.provider !== "grok") return { no: "other_model" };
      if (!this.#ctx.isIdle()) return { no: "busy" };
      this.#pi.sendMessage({ customType: "grok-wake", content: text, display: false, details: { id } }, { triggerTurn: true });
      return { started: true };
    },
    models: (params) => this.#offer(params.models),
  };

  #hello(conn: string): Json {
    const ctx = this.#ctx, env = Object.entries(process.env).filter(([name]) => name.startsWith("PI_GROK_"));
    return {
      v: 1, ext: "1.0.0", pi: piVersion(), node: process.versions.node, mode: ctx?.mode ?? (ctx?.hasUI ? "tui" : "print"), ui: Boolean(ctx?.hasUI),
      caps: this.#pi.registerEntryRenderer ? ["entries", "renderers"] : ["entries"],
      agent_dir: this.#settings.agentDir, env: Object.fromEntries(env), ...(conn && { conn }),
    };
  }

  async #arrived(welcome: Json): Promise<void> {
    const first = !this.#welcome.conn;
    this.#welcome = welcome;
    this.#offer(welcome.models);
    this.#dialogs.reconnected();
    if (first && !this.#pi.registerEntryRenderer) this.#say(OLD_PI, "warning");
    if (welcome.notice) this.#say(welcome.notice, "warning");
    await this.#show(first ? "startup" : "reconnect");
    for (const turn of this.#turns.values()) {
      if (turn.ended) this.#abort(turn);
      else if (turn.asked) await this.#resume(turn);
    }
  }

  #lost(text: string): void {
    this.#dialogs.closeAll();
    for (const turn of this.#turns.values()) turn.end({ stop: "error", error: text });
    this.#turns.clear();
    this.#ui?.setStatus("grok", undefined);
  }

  #offer(models: Json[]): null {
    if (!models?.length || JSON.stringify(models) === JSON.stringify(this.#models)) return null;
    this.#models = models;
    this.#pi.registerProvider("grok", {
      name: "Grok Build", baseUrl: this.#settings.url, apiKey: "grok-gateway", api: "grok-acp", models: models.map(piModel),
      streamSimple: (model: Json, context: Json, options?: Json) => this.#stream(model, context, options ?? {}),
    });
    return null;
  }

  /** Tell the gateway which session is on screen, and how. */
  async #show(reason: string): Promise<void> {
    const session = this.#session, ctx = this.#ctx, pi = this.#pi;
    if (!ctx || !session) return;
    const isBinding = ({ type, customType }: Json) => type === "custom" && customType === "grok-session";
    const answer = await this.#link.request("session", {
      session, cwd: ctx.cwd, reason, binding: ctx.sessionManager.getBranch().findLast(isBinding)?.data ?? null,
      model: ctx.model ? `${ctx.model.provider}/${ctx.model.id}` : null, effort: pi.getThinkingLevel(), active: pi.getActiveTools(),
      tools: pi.getAllTools().map(({ name, description, parameters, sourceInfo }) => ({ name, description, parameters, source: sourceInfo?.source })),
    });
    this.#delivered = answer.delivered;
  }

  // -- turns -------------------------------------------------------------------------------------

  #stream(model: Json, context: Json, { sessionId, cacheRetention, reasoning, signal }: Json): unknown {
    const side = sessionId === undefined || cacheRetention === "none", onScreen = !side && sessionId === this.#session;
    const isSystem = ({ role }: Json) => role === "system", all: Json[] = context.messages;
    const turn = new Turn(model, {
      kind: side ? "side" : "turn", session: side ? undefined : sessionId, model: model.id, effort: reasoning, cwd: this.#ctx?.cwd ?? process.cwd(),
      system: context.systemPrompt === undefined ? all.filter(isSystem) // Pi 1.x
        : [{ role: "system", content: context.systemPrompt, toolsAdded: context.tools }],
      messages: all.filter((message) => !isSystem(message)),
      ...(onScreen && { entries: this.#ctx!.sessionManager.getBranch().map(outline), active: this.#pi.getActiveTools() }),
    }, ({ stop, delivered }) => {
      if (stop !== "aborted") this.#turns.delete(turn.id);
      if (onScreen && delivered) this.#delivered = delivered;
    });
    this.#turns.set(turn.id, turn);
    const abort = () => { // the signal is the whole run's: it may fire when the turn has long ended
      if (turn.ended && turn.message.stopReason !== "toolUse") return;
      turn.end({ stop: "aborted" });
      if (this.#link.open || !turn.asked) this.#abort(turn); // else when the socket is back
    };
    signal?.addEventListener("abort", abort, { once: true });
    if (signal?.aborted) abort();
    else void this.#ask(turn);
    return turn.stream;
  }

  #abort(turn: Turn): void {
    this.#link.notify("turn/abort", { turn: turn.id, session: turn.params.session });
    this.#turns.delete(turn.id);
  }

  async #ask(turn: Turn): Promise<void> {
    try {
      await this.#link.ready();
      if (turn.ended) return;
      turn.asked = true;
      const answer = await this.#link.request("turn", sinceThen(turn.params, this.#delivered));
      if (answer.need === "all") await this.#link.request("turn", turn.params);
    } catch (error) {
      const goesOn = turn.asked && (error as Json).kind === "busy"; // by `turn/resume`, when the socket is back
      if (!goesOn) turn.end({ stop: "error", error: (error as Error).message });
    }
  }

  async #resume(turn: Turn): Promise<void> {
    const answer = await this.#link.request("turn/resume", turn.known());
    if (!answer.ok && !answer.again) turn.end({ stop: "error", error: answer.reason });
    if (answer.ok || !answer.again) return;
    turn.restart();
    void this.#ask(turn);
  }

  // -- people ------------------------------------------------------------------------------------

  async #command(text: string, ctx: Context): Promise<void> {
    this.#ctx = ctx;
    const [, name, args] = /^\s*(\S*)\s*(.*)$/s.exec(text)!;
    try {
      await this.#link.ready();
      const { notice, level } = await this.#link.request("command", { session: this.#session, name, args });
      if (notice) this.#say(notice, level ?? "info");
    } catch (error) {
      this.#say((error as Error).message, "error");
    }
  }

  #completions(): Json[] {
    const known: Json[] = this.#welcome.commands ?? [{ name: "debug" }, { name: "perms", args: ["auto", "read-only", "ask", "yolo"] }];
    const words = known.flatMap(({ name, description, args }) => [{ name, description }, ...(args ?? []).map((arg: string) => ({ name: `${name} ${arg}`, description }))]);
    return words.map(({ name, description }) => ({ value: name, label: name, description }));
  }

  #say(text: string, level: string): void {
    if (this.#ui) this.#ui.notify(text, level);
    else console.error(text);
  }
}

/** Only what has come after an entry that Grok knows, where messages and entries can be told apart there. */
function sinceThen(params: Json, since: string | undefined): Json {
  const { system, ...rest } = params, entries: Json[] = params.entries ?? [], messages: Json[] = params.messages;
  const known = entries.findLastIndex(({ id }) => id === since), at = messages.findLastIndex(({ timestamp }) => timestamp === entries[known]?.ts);
  return known < 0 || at < 0 ? { system, ...rest } : { ...rest, since, entries: entries.slice(known + 1), messages: messages.slice(at + 1) };
}

/** An entry of the branch: messages reach a provider without their ids, and are joined with entries by time. */
function outline({ id, type, message, customType, timestamp, details }: Json): Json {
  const ts = message?.timestamp ?? Date.parse(timestamp);
  return { id, type, role: message?.role, customType, ts, details: customType === "grok-wake" ? details : undefined };
}

function piVersion(): string {
  try {
    for (let folder = dirname(realpathSync(process.argv[1]!)); folder !== dirname(folder); folder = dirname(folder)) {
      const file = join(folder, "package.json");
      const { name, version } = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
      if (String(name).endsWith("/pi-coding-agent")) return version;
    }
  } catch { /* started in some other way */ }
  return "";
}
