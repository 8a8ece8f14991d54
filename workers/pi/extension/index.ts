// Grok Build as a provider of Pi. This half relays and draws; every decision is the gateway's (docs/pi-protocol.md).
import { readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { Dialogs } from "./dialogs.ts";
import { Link } from "./link.ts";
import type { Context, Json, Pi } from "./pi.ts";
import { renderTool, renderTurn } from "./render.ts";
import { loadModels, loadSettings, piModel } from "./settings.ts";
import { Turn } from "./turn.ts";

const VERSION = "1.0.0", PROVIDER = "grok", API = "grok-acp";
const COMMANDS = [{ name: "debug", description: "" }, { name: "perms", description: "" }];

export default function grok(pi: Pi): void {
  try {
    if (!pi.registerProvider) throw new Error("this program has no registerProvider");
    extend(pi, pi.registerProvider.bind(pi));
  } catch (error) { // an extension that throws while it loads ends Pi for every model
    console.error(`Grok is not available in this Pi: ${(error as Error).message}. Update Pi (npm install -g @earendil-works/pi-coding-agent), then \`grok-gateway pi install\`.`);
  }
}

function extend(pi: Pi, register: (name: string, config: Json) => void): void {
  const settings = loadSettings();
  // Pi gives all of Node a proxy from HTTP_PROXY; the gateway is on this machine.
  process.env.NO_PROXY = [process.env.NO_PROXY, "127.0.0.1", "localhost", "[::1]"].filter(Boolean).join(",");
  let ctx: Context | undefined, welcome: Json = {}, models: Json[] = [], greeted = false;
  const dialogs = new Dialogs(), turns = new Map<string, Turn>(), entries = new Set<string>();
  let delivered: string | undefined; // the newest entry of the session on screen that Grok knows

  const current = () => ctx?.sessionManager.getSessionId();
  const ours = () => ctx?.model?.provider === PROVIDER;
  const mode = () => ctx?.mode ?? (ctx?.hasUI ? "tui" : "print");

  const link = new Link(settings, {
    hello: (conn) => ({
      v: 1, ext: VERSION, pi: piVersion(), node: process.versions.node, mode: mode(), ui: Boolean(ctx?.hasUI),
      caps: pi.registerEntryRenderer ? ["entries", "renderers"] : ["entries"], agent_dir: settings.agentDir,
      env: Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("PI_GROK_"))), ...(conn && { conn }),
    }),
    async arrived(answer) {
      welcome = answer;
      offer(answer.models);
      dialogs.reconnected();
      if (!greeted && !pi.registerEntryRenderer) say("This Pi is older than 1.0: Grok answers, asks and can be stopped, but its tools are listed in its thoughts only. Update Pi to see them as entries.", "warning");
      if (answer.notice) say(answer.notice, "warning");
      await show(greeted ? "reconnect" : "startup");
      greeted = true;
      for (const turn of turns.values()) {
        if (turn.ended) { link.notify("turn/abort", abortParams(turn)); turns.delete(turn.id); }
        else if (turn.asked) await resume(turn);
      }
    },
    lost(text) {
      dialogs.closeAll();
      for (const turn of turns.values()) turn.end({ stop: "error", error: text });
      turns.clear();
      if (ctx?.hasUI) ctx.ui.setStatus("grok", undefined);
    },
    received: (method, params) => methods[method]?.(params),
  });

  const methods: Record<string, (params: Json) => unknown> = {
    "turn/event": (params) => turns.get(params.turn)?.event(params) ?? null,
    "turn/end": (params) => turns.get(params.turn)?.end(params) ?? null,
    "ui/ask": async (params) => {
      const answer = await dialogs.ask(ctx, params, (queued) => link.notify("ui/shown", { ask: params.ask, queued }));
      if (link.open) dialogs.sent(params.ask);
      return answer;
    },
    "ui/close": (params) => dialogs.close(params.ask) ?? null,
    "ui/set": ({ kind, args }) => {
      if (ctx?.hasUI && kind === "notify") ctx.ui.notify(args.message, args.level);
      if (ctx?.hasUI && kind === "status") ctx.ui.setStatus(args.key, args.text ?? undefined);
      if (ctx?.hasUI && kind === "widget") ctx.ui.setWidget(args.key, args.lines ?? undefined);
      return null;
    },
    entry: ({ session, id, type, data }) => {
      if (session !== current()) return { not_current: true };
      if (!entries.has(`${type} ${id}`)) pi.appendEntry(type, data);
      entries.add(`${type} ${id}`);
      return { ok: true };
    },
    wake: ({ session, id, text }) => {
      const no = session !== current() ? "other_session" : !ctx!.hasUI ? "no_ui" : !ours() ? "other_model" : !ctx!.isIdle() ? "busy" : "";
      if (no) return { no };
      pi.sendMessage({ customType: "grok-wake", content: text, display: false, details: { id } }, { triggerTurn: true });
      return { started: true };
    },
    models: (params) => offer(params.models) ?? null,
  };

  function say(text: string, level: string): void {
    if (ctx?.hasUI) ctx.ui.notify(text, level);
    else process.stderr.write(`${text}\n`);
  }

  function offer(list: Json[]): void {
    if (!list?.length || JSON.stringify(list) === JSON.stringify(models)) return;
    models = list;
    register(PROVIDER, { name: "Grok Build", baseUrl: settings.url, apiKey: "grok-gateway", api: API, streamSimple, models: list.map(piModel) });
  }

  /** Tell the gateway which session is on screen, and how. */
  async function show(reason: string): Promise<void> {
    const session = current();
    if (!ctx || !session) return;
    const branch = ctx.sessionManager.getBranch();
    const binding = branch.findLast((entry) => entry.type === "custom" && entry.customType === "grok-session")?.data ?? null;
    const tools = pi.getAllTools().map((tool) => ({ name: tool.name, description: tool.description, parameters: tool.parameters, source: tool.sourceInfo?.source }));
    const answer = await link.request("session", {
      session, cwd: ctx.cwd, reason, binding, model: ctx.model ? `${ctx.model.provider}/${ctx.model.id}` : null,
      effort: pi.getThinkingLevel(), active: pi.getActiveTools(), tools,
    });
    if (session === current()) delivered = answer.delivered;
  }

  const changed = (reason: string) => { if (link.open) show(reason).catch(() => {}); }; // a lost socket tells it again

  const abortParams = (turn: Turn) => ({ turn: turn.id, session: turn.params.session });

  async function send(turn: Turn): Promise<void> {
    turn.asked = true;
    const known = turn.params.entries?.findLastIndex((entry: Json) => entry.id === delivered) ?? -1;
    const at = known < 0 ? -1 : turn.params.messages.findLastIndex((message: Json) => message.timestamp === turn.params.entries[known].ts);
    const { system: _, ...rest } = turn.params;
    const tail = at >= 0 && { ...rest, since: delivered, entries: rest.entries.slice(known + 1), messages: rest.messages.slice(at + 1) };
    const answer = await link.request("turn", tail || turn.params);
    if (answer.need === "all") await link.request("turn", turn.params);
  }

  async function resume(turn: Turn): Promise<void> {
    const answer = await link.request("turn/resume", turn.resume());
    if (answer.ok) return;
    if (!answer.again) return turn.end({ stop: "error", error: answer.reason });
    turn.restart();
    void attempt(turn);
  }

  /** A turn whose request is lost with its socket goes on by `turn/resume`. */
  async function attempt(turn: Turn): Promise<void> {
    try {
      await link.ready();
      if (!turn.ended) await send(turn);
    } catch (error) {
      if (!(turn.asked && (error as Json).kind === "busy" && turns.has(turn.id))) turn.end({ stop: "error", error: (error as Error).message });
    }
  }

  function streamSimple(model: Json, context: Json, options: Json = {}): unknown {
    const side = options.sessionId === undefined || options.cacheRetention === "none";
    const onScreen = !side && options.sessionId === current();
    const all: Json[] = context.messages, isSystem = (message: Json) => message.role === "system";
    const turn = new Turn(model, {
      kind: side ? "side" : "turn", ...(side ? {} : { session: options.sessionId }), model: model.id, cwd: ctx?.cwd ?? process.cwd(),
      ...(options.reasoning && options.reasoning !== "off" ? { effort: options.reasoning } : {}),
      system: context.systemPrompt === undefined ? all.filter(isSystem) : [{ role: "system", content: context.systemPrompt, toolsAdded: context.tools }],
      messages: all.filter((message) => !isSystem(message)),
      ...(onScreen ? { entries: ctx!.sessionManager.getBranch().map(outline), active: pi.getActiveTools() } : {}),
    }, (end) => {
      if (end.stop !== "aborted" || !end.own) turns.delete(turn.id);
      if (onScreen && end.delivered) delivered = end.delivered;
    });
    turns.set(turn.id, turn);
    const abort = () => { // the signal is the whole run's: it may fire when the turn has long ended
      if (turn.ended && turn.message.stopReason !== "toolUse") return;
      turn.end({ stop: "aborted", own: true });
      if (turn.asked && !link.open) return; // told when the socket is back
      link.notify("turn/abort", abortParams(turn));
      turns.delete(turn.id);
    };
    if (options.signal?.aborted) abort();
    options.signal?.addEventListener("abort", abort, { once: true });
    if (!turn.ended) void attempt(turn);
    return turn.stream;
  }

  offer(loadModels(settings.modelsFile));
  pi.registerEntryRenderer?.("grok-tool", renderTool);
  pi.registerEntryRenderer?.("grok-turn", renderTurn);
  pi.registerCommand("grok", {
    description: "Grok Build: debug, perms",
    getArgumentCompletions(prefix: string) {
      const known: Json[] = welcome.commands ?? COMMANDS;
      const all = known.flatMap(({ name, description, args = [] }) => [{ value: name, label: name, description }, ...args.map((arg: string) => ({ value: `${name} ${arg}`, label: `${name} ${arg}`, description }))]);
      return all.filter(({ value }) => value.startsWith(prefix));
    },
    async handler(text: string, context: Context) {
      ctx = context;
      const [, name = "", args = ""] = /^\s*(\S*)\s*(.*)$/s.exec(text) ?? [];
      try {
        await link.ready();
        const answer = await link.request("command", { session: current(), name, args });
        if (answer.notice) say(answer.notice, answer.level ?? "info");
      } catch (error) { say((error as Error).message, "error"); }
    },
  });

  pi.on("session_start", (_event, context) => {
    ctx = context;
    for (const { type, customType, data } of ctx.sessionManager.getEntries()) if (type === "custom") entries.add(`${customType} ${data?.id}`);
  });
  pi.on("session_shutdown", () => {
    const session = current();
    if (session) link.notify("session/close", { session, reason: "shutdown" });
    dialogs.closeAll();
    link.close();
  });
  pi.on("session_tree", (_event, context) => { ctx = context; delivered = undefined; changed("tree"); });
  pi.on("model_select", (_event, context) => { ctx = context; changed("change"); });
  pi.on("thinking_level_select", (_event, context) => { ctx = context; changed("change"); });
  pi.on("before_agent_start", (_event, context) => { ctx = context; });
  pi.on("session_before_compact", ({ reason }) => (welcome.veto_auto_compaction && ours() && (reason === "threshold" || reason === "overflow") ? { cancel: true } : undefined));
}

/** What tells the entries of a branch apart: messages reach a provider without their ids. */
function outline({ id, type, message, customType, timestamp, details }: Json): Json {
  return { id, type, role: message?.role, customType, ts: message?.timestamp ?? Date.parse(timestamp), ...(customType === "grok-wake" && { details }) };
}

function piVersion(): string {
  try {
    for (let folder = dirname(realpathSync(process.argv[1]!)); ; folder = dirname(folder)) {
      try {
        const { name, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
        if (name.endsWith("/pi-coding-agent")) return version;
      } catch { if (folder === dirname(folder)) return ""; }
    }
  } catch { return ""; }
}
