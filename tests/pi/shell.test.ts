// The shell without Pi, against a scripted gateway. Run by test_shell.py: node --test shell.test.ts
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import grok from "../../workers/pi/extension/index.ts";
import { renderEntry } from "../../workers/pi/extension/render.ts";
import { loadAddress } from "../../workers/pi/extension/settings.ts";
import { Server } from "./gateway_server.ts";

type Json = Record<string, any>;

let folder: string, server: Server, port: number, turn: string;
const taken = { turn: (params: Json) => { turn = params.turn; } };
const paint = { fg: (color: string, text: string) => `<${color}>${text}` };

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "shell"));
  process.env.PI_CODING_AGENT_DIR = folder;
  delete process.env.GROK_ACP_URL;
  server = new Server(taken);
  port = await server.listen();
  writeFileSync(join(folder, "secret"), "5ec\n");
  settings({});
});
afterEach(() => { server.stop(); rmSync(folder, { recursive: true }); });

function settings(more: Json): void {
  const where = { url: `ws://127.0.0.1:${port}/ws`, secretFile: join(folder, "secret"), modelsFile: join(folder, "models.json") };
  writeFileSync(join(folder, "grok-ws.json"), JSON.stringify({ ...where, ...more }));
}

/** A stand-in for Pi: one session, one branch. */
class Host {
  handlers: Record<string, (event: Json, ctx: any) => any> = {};
  providers: Json[] = [];
  branch: Json[] = [{ type: "message", id: "e1", timestamp: "2026-01-01T00:00:00Z", message: { role: "user", timestamp: 11 } }];
  entries: Json[] = [];
  sent: Json[] = [];
  notices: string[] = [];
  statuses: (string | undefined)[] = [];
  dialogs: { title: string; signal: AbortSignal; answer: (value: any) => void }[] = [];
  command!: Json;
  idle = true;
  ctx: any = {
    hasUI: true, mode: "tui", cwd: "/w", model: { id: "m", provider: "grok" }, isIdle: () => this.idle,
    sessionManager: { getSessionId: () => "s1", getBranch: () => this.branch, getEntries: () => this.branch },
    ui: {
      notify: (text: string) => this.notices.push(text), setStatus: (_key: string, text?: string) => this.statuses.push(text), setWidget() {},
      select: (title: string, _options: string[], more: Json) => this.#dialog(title, more.signal), input: (title: string, _p: string, more: Json) => this.#dialog(title, more.signal),
      confirm: (title: string, _m: string, more: Json) => this.#dialog(title, more.signal),
    },
  };
  #dialog(title: string, signal: AbortSignal): Promise<any> {
    return new Promise((answer) => { this.dialogs.push({ title, signal, answer }); signal.onabort = () => answer(undefined); });
  }
  api: any = {
    on: (event: string, handler: any) => { this.handlers[event] = handler; }, registerProvider: (_name: string, config: Json) => this.providers.push(config),
    registerCommand: (_name: string, command: Json) => { this.command = command; }, registerEntryRenderer() {}, getThinkingLevel: () => "high",
    appendEntry: (customType: string, data: Json) => { this.entries.push({ customType, data }); this.branch.push({ type: "custom", customType, data }); }, sendMessage: (message: Json) => this.sent.push(message),
    getActiveTools: () => ["read"],
  };
  start(): this { grok(this.api); this.handlers.session_start!({ reason: "startup" }, this.ctx); return this; }
  stop(): void { this.handlers.session_shutdown!({ reason: "quit" }, this.ctx); }
  call(messages: Json[] = [{ role: "user", content: "hi", timestamp: 11 }], options: Json = { sessionId: "s1" }): any {
    return this.providers.at(-1)!.streamSimple({ id: "m", provider: "grok", api: "grok-acp" }, { messages: [{ role: "system", content: "S" }, ...messages] }, options);
  }
}

async function collect(stream: any): Promise<string[]> {
  const seen: string[] = [];
  for await (const event of stream) seen.push(event.type);
  return seen;
}
const event = (seq: number, op: string, i: number, more: Json = {}) => server.peer.send({ method: "turn/event", params: { turn, seq, op, i, ...more } });
const end = (more: Json = {}) => server.answer("turn", { stop: "stop", usage: { totalTokens: 7 }, ...more });
const begun = (count = 1) => server.until(() => server.params("turn").length >= count);

test("it loads without a gateway, with its models as they are", () => {
  server.stop();
  const host = new Host().start();
  assert.equal(server.peers.length, 0);
  assert.equal(host.providers[0]!.api, "grok-acp");
  assert.deepEqual(host.providers[0]!.models.map((m: Json) => m.id), ["grok-4.7", "grok-4.7-build-fast", "grok-4.6", "grok-4.5"]);
  writeFileSync(join(folder, "models.json"), JSON.stringify({ models: [{ id: "not so" }], pi: [{ id: "x", maxTokens: 0 }] }));
  assert.deepEqual(new Host().start().providers[0]!.models, [{ id: "x", maxTokens: 0 }]);
  host.stop();
});

test("a host that is no Pi, and one that is old", async () => {
  const said: string[] = [], log = console.error;
  console.error = (text: string) => said.push(text);
  try { grok({ on() {} } as any); } finally { console.error = log; }
  assert.match(said[0]!, /Grok is not available in this Pi/);
  const host = new Host();
  delete host.api.registerEntryRenderer;
  host.start();
  host.call();
  await begun();
  assert.deepEqual(server.params("hello")[0]!.caps, ["entries"]);
  host.stop();
});

test("the address: environment, else file; never another machine", () => {
  assert.deepEqual(loadAddress(), { url: `ws://127.0.0.1:${port}/pi`, authorization: "Bearer 5ec" });
  process.env.GROK_ACP_URL = "ws://[::1]:7/ws";
  assert.equal(loadAddress().url, "ws://[::1]:7/pi");
  for (const bad of ["ws://example.org/pi", "http://127.0.0.1/pi", "nonsense"]) {
    process.env.GROK_ACP_URL = bad;
    assert.throws(loadAddress, /must be ws:\/\/ and on this machine|Invalid URL/);
  }
  for (const content of ["{", "{}"]) {
    writeFileSync(join(folder, "grok-ws.json"), content);
    assert.throws(loadAddress, /grok-ws.json cannot be used: .*`grok-gateway pi install`/);
  }
});

test("a turn: introduction, events, end", async () => {
  const host = new Host().start(), stream = host.call(), seen = collect(stream);
  await begun();
  assert.deepEqual(server.methods, ["hello", "session", "turn"]);
  assert.equal(server.peer.headers.authorization, "Bearer 5ec");
  const [session] = server.params("session"), [sent] = server.params("turn");
  assert.deepEqual(session, { session: "s1", cwd: "/w", reason: "connect", active: ["read"] });
  assert.deepEqual([sent!.kind, sent!.model, sent!.seq, sent!.blocks, sent!.entries], ["turn", "m", 0, [], [{ id: "e1", type: "message", role: "user", ts: 11 }]]);
  assert.deepEqual(sent!.messages.map((message: Json) => message.role), ["system", "user"]);
  event(1, "start", 0, { type: "thinking" });
  event(2, "delta", 0, { text: "hm" });
  event(2, "delta", 0, { text: "twice" });
  event(3, "end", 0);
  event(4, "start", 1, { type: "text" });
  event(5, "delta", 1, { text: "yes" });
  event(6, "end", 1);
  end({ texts: { 1: "yes!" }, raw_stop: "end_turn" });
  const message = await stream.result();
  assert.deepEqual(await seen, ["start", "thinking_start", "thinking_delta", "thinking_end", "text_start", "text_delta", "text_end", "done"]);
  assert.deepEqual(message.content, [{ type: "thinking", thinking: "hm" }, { type: "text", text: "yes!" }]);
  assert.deepEqual([message.stopReason, message.rawStopReason, message.usage.totalTokens, message.responseId], ["stop", "end_turn", 7, turn]);
  host.stop();
  assert.equal(await server.peer.closed, 1000);
  assert.equal(server.methods.at(-1), "session/close");
});

test("only what is new is sent, all when the gateway needs it", async () => {
  const host = new Host().start(), first = host.call();
  await begun();
  end({ delivered: "e1" });
  await first.result();
  host.branch.push({ type: "message", id: "e2", message: { role: "user", timestamp: 22 } });
  server.answers.turn = (params) => (params.since ? { need: "all" } : taken.turn(params));
  const two = [{ role: "user", timestamp: 11 }, { role: "user", timestamp: 22 }];
  const second = host.call(two);
  await begun(3);
  const [, tail, whole] = server.params("turn");
  assert.deepEqual([tail!.since, tail!.entries.length, tail!.messages], ["e1", 1, [two[1]]]);
  assert.deepEqual([whole!.turn, whole!.entries.length, whole!.messages.length], [tail!.turn, 2, 3]);
  end({ stop: "error", error: "Grok says no." });
  const message = await second.result();
  assert.deepEqual([message.stopReason, message.errorMessage], ["error", "Grok says no."]);
  host.stop();
});

test("side calls carry no session", async () => {
  const host = new Host().start();
  host.call([], { sessionId: "x", cacheRetention: "none" });
  host.call([], {});
  await begun(2);
  for (const params of server.params("turn")) assert.deepEqual([params.kind, params.session, params.entries], ["side", undefined, undefined]);
  host.stop();
});

test("abort ends at once, and nothing touches the message later", async () => {
  const host = new Host().start(), run = new AbortController(), stream = host.call(undefined, { sessionId: "s1", signal: run.signal });
  await begun();
  event(1, "start", 0, { type: "text" });
  await server.request("x", "nonsense", {});
  run.abort();
  const message = await stream.result();
  assert.equal(message.stopReason, "aborted");
  await server.until(() => server.methods.includes("turn/abort"));
  event(2, "delta", 0, { text: "late" });
  end();
  assert.equal((await server.request("y", "nonsense", {})).error.code, -32601);
  assert.deepEqual(message.content, [{ type: "text", text: "" }]);
  assert.equal(message.stopReason, "aborted");
  host.stop();
});

test("an error of the gateway is the message's, word for word", async () => {
  server.answers.turn = () => new Error("Grok has no model 'm' here.");
  const host = new Host().start(), message = await host.call().result();
  assert.deepEqual([message.stopReason, message.errorMessage], ["error", "Grok has no model 'm' here."]);
  host.stop();
});

for (const how of ["1012", "lost"]) test(`a turn goes on after its socket: ${how}`, async () => {
  const host = new Host().start(), stream = host.call();
  await begun();
  event(1, "start", 0, { type: "text" });
  event(2, "delta", 0, { text: "ab😀" });
  await server.request("x", "nonsense", {});
  if (how === "1012") server.peer.close(1012);
  else server.peer.drop();
  await begun(2);
  assert.deepEqual(server.methods.slice(-3), ["hello", "session", "turn"]);
  assert.equal(server.peer.headers["grok-gateway-connection"], "c".repeat(32));
  assert.equal(server.peer.headers["grok-gateway-received"], "0");
  assert.equal(server.params("hello")[1]!.conn, "c".repeat(32));
  const [first, again] = server.params("turn");
  assert.deepEqual(again, { ...first, seq: 2, blocks: [{ type: "text", chars: 4 }] });
  event(3, "delta", 0, { text: "c" });
  end();
  assert.deepEqual((await stream.result()).content, [{ type: "text", text: "ab😀c" }]);
  host.stop();
});

test("a gateway that has forgotten: a new connection, the turn again, or its end", async () => {
  const host = new Host().start(), stream = host.call();
  await begun();
  event(1, "start", 0, { type: "text" });
  event(2, "delta", 0, { text: "one" });
  await server.request("x", "nonsense", {});
  server.refusals = 1;
  server.peer.drop();
  await begun(2);
  assert.equal(server.peer.headers["grok-gateway-connection"], undefined);
  assert.deepEqual([server.params("turn")[1]!.turn, server.params("turn")[1]!.seq], [turn, 2]);
  event(3, "start", 1, { type: "text" });
  event(4, "delta", 1, { text: "two" });
  await server.request("y", "nonsense", {});
  server.answers.turn = () => new Error("Grok was restarted.");
  server.peer.drop();
  const message = await stream.result();
  assert.deepEqual(message.content.map((block: Json) => block.text), ["one", "two"]);
  assert.deepEqual([message.stopReason, message.errorMessage], ["error", "Grok was restarted."]);
  host.stop();
});

test("what is aborted while the socket is away is not asked for again", async () => {
  const host = new Host().start(), run = new AbortController(), stream = host.call(undefined, { sessionId: "s1", signal: run.signal });
  await begun();
  server.refusals = 2;
  server.peer.drop();
  await new Promise((resolve) => setTimeout(resolve, 50));
  run.abort();
  assert.equal((await stream.result()).stopReason, "aborted");
  await server.until(() => server.params("session").length === 2);
  await server.request("x", "nonsense", {});
  assert.equal(server.params("turn").length, 1);
  host.stop();
});

test("a gateway that stops ends the turn", async () => {
  const host = new Host().start(), stream = host.call();
  await begun();
  server.peer.close(1001);
  assert.match((await stream.result()).errorMessage, /was stopped.*grok-gateway up/);
  host.stop();
});

test("dialogs: one at a time, joined after a lost socket, withdrawn", async () => {
  const host = new Host().start();
  host.call();
  await begun();
  const ask = (id: string, name: string) => server.peer.send({ id, method: "ui/ask", params: { ask: name, session: "s1", kind: "select", args: { title: name, options: ["a", "b"] } } });
  ask("1", "first");
  ask("2", "second");
  await server.until(() => server.params("ui/shown").length === 2);
  assert.deepEqual(server.params("ui/shown"), [{ ask: "first" }, { ask: "second" }]);
  assert.deepEqual(host.dialogs.map(({ title }) => title), ["first"]);
  server.peer.drop();
  await begun(2);
  assert.deepEqual(server.params("hello").map(({ asks }) => asks), [[], ["first", "second"]]);
  ask("3", "first");
  await server.until(() => server.params("ui/shown").length === 3);
  assert.equal(host.dialogs.length, 1, "shown twice");
  host.dialogs[0]!.answer("b");
  await server.until(() => server.results.has("3"));
  assert.deepEqual(server.results.get("3"), { value: "b" });
  while (host.dialogs.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  server.peer.send({ method: "ui/close", params: { ask: "second", why: "time is up" } });
  await new Promise<void>((resolve) => host.dialogs[1]!.signal.addEventListener("abort", () => resolve()));
  host.ctx.hasUI = false;
  assert.deepEqual(await server.request("4", "ui/ask", { ask: "third", kind: "confirm", args: {} }), { unavailable: true });
  host.stop();
});

test("entries are written once, and only to the session on screen", async () => {
  const host = new Host();
  host.branch.push({ type: "custom", customType: "grok-tool", data: { id: "old" } });
  host.start().call();
  await begun();
  const entry = (id: string, session = "s1") => ({ session, id, type: "grok-tool", data: { id } });
  assert.deepEqual(await server.request("1", "entry", entry("new")), { ok: true });
  assert.deepEqual(await server.request("2", "entry", entry("new")), { ok: true });
  assert.deepEqual(await server.request("3", "entry", entry("old")), { ok: true });
  assert.deepEqual(await server.request("4", "entry", entry("other", "s2")), { not_current: true });
  assert.deepEqual(host.entries, [{ customType: "grok-tool", data: { id: "new" } }]);
  host.stop();
});

test("Pi is woken when it is idle there", async () => {
  const host = new Host().start();
  host.call();
  await begun();
  const wake = (id: string, session = "s1") => server.request(id, "wake", { session, id, text: "Grok goes on" });
  assert.deepEqual(await wake("1"), { started: true });
  assert.deepEqual(host.sent, [{ customType: "grok-wake", content: "Grok goes on", display: false, details: { id: "1" } }]);
  assert.deepEqual(await wake("2", "s2"), { started: false });
  host.idle = false;
  assert.deepEqual(await wake("3"), { started: false });
  host.idle = true;
  host.ctx.model = { provider: "other" };
  assert.deepEqual(await wake("4"), { started: false });
  host.stop();
});

test("commands, completions, notices, compaction", async () => {
  server.answers.hello = () => ({ v: 1, conn: "c", notice: "careful" });
  server.answers.command = ({ text }) => (text === "bad" ? new Error("no such thing") : { notice: `has ${text}`, level: "info" });
  const host = new Host().start();
  await host.command.handler("perms ask now ", host.ctx);
  await host.command.handler("bad", host.ctx);
  assert.deepEqual(host.notices, ["careful", "has perms ask now ", "no such thing"]);
  assert.deepEqual(host.command.getArgumentCompletions("perms a").map(({ value }: Json) => value), ["perms auto", "perms ask"]);
  assert.deepEqual(host.handlers.session_before_compact!({ reason: "threshold" }, host.ctx), { cancel: true });
  assert.equal(host.handlers.session_before_compact!({ reason: "manual" }, host.ctx), undefined);
  host.ctx.model = { provider: "other" };
  assert.equal(host.handlers.session_before_compact!({ reason: "threshold" }, host.ctx), undefined);
  server.peer.send({ method: "ui/status", params: { text: "grok · new" } });
  server.peer.send({ method: "ui/notify", params: { message: "look", level: "info" } });
  await server.request("x", "nonsense", {});
  assert.equal(host.notices.at(-1), "look");
  assert.deepEqual(host.statuses, ["grok · new"]);
  host.stop();
});

test("entries are painted as they are laid out", () => {
  const lines = [{ spans: [["toolTitle", "[grok run] "], ["dim", "completed"]] }, { spans: [["muted", "out"]], expanded: true }, { text: "wörter" }, { text: "" }];
  assert.deepEqual(renderEntry({ data: { lines } }, { expanded: false }, paint).render(4), ["<toolTitle>[grok run] <dim>completed", "wört", "er", ""]);
  assert.equal(renderEntry({ data: { lines } }, { expanded: true }, paint).render(80)[1], "<muted>out");
  assert.deepEqual(renderEntry({ data: {} }, { expanded: true }, paint).render(80), []);
});
