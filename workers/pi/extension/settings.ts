// Where the gateway is: environment, else <agentDir>/grok-ws.json (`grok-gateway pi install` writes it), else defaults.
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import type { Json } from "./pi.ts";

const LEVELS = ["off", "minimal", "low", "medium", "high", "xhigh", "max"];
const EFFORTS = ["low", "medium", "high", "xhigh"].map((id) => ({ id }));
const STATIC: Json[] = ["grok-4.7", "grok-4.7-build-fast", "grok-4.6", "grok-4.5"].map((id) => ({ id, reasoning: { efforts: EFFORTS } }));

/** `problem`: why the settings cannot be used, for people. */
export type Settings = { agentDir: string; url: string; secretFile: string; modelsFile: string; problem: string };

export function loadSettings(env = process.env): Settings {
  const expand = (path: string) => (path.startsWith("~/") ? join(homedir(), path.slice(2)) : path);
  const agentDir = expand(env.PI_CODING_AGENT_DIR || "~/.pi/agent"), file = join(agentDir, "grok-ws.json");
  let data: Json = {}, problem = "", url = "";
  try {
    data = Object(JSON.parse(readFileSync(file, "utf8")));
  } catch (error) {
    if ((error as Json).code !== "ENOENT") problem = `${file} cannot be read: ${(error as Error).message}. Correct it or remove it.`;
  }
  const home = env.GROK_GATEWAY_HOME;
  const folder = (kind: string, xdg: string | undefined, usual: string) => (home ? join(home, kind) : join(xdg || expand(usual), "grok-gateway"));
  const named = (key: string, usual: string) => (!home && typeof data[key] === "string" ? expand(data[key]) : usual);
  try {
    const port = env.GROK_GATEWAY_PORT && `ws://127.0.0.1:${env.GROK_GATEWAY_PORT}`;
    const parsed = new URL(env.GROK_ACP_URL || port || data.url || "ws://127.0.0.1:2419");
    if (parsed.protocol !== "ws:" || !["127.0.0.1", "localhost", "[::1]"].includes(parsed.hostname)) throw new Error();
    url = `ws://${parsed.host}/pi`; // whatever path was named: some configurations have /ws
  } catch {
    problem ||= `"url" in ${file}, or GROK_ACP_URL: must be ws:// and on this machine, like ws://127.0.0.1:2419/pi.`;
  }
  const secretFile = named("secretFile", join(folder("config", env.XDG_CONFIG_HOME, "~/.config"), "secret"));
  const modelsFile = named("modelsFile", join(folder("state", env.XDG_STATE_HOME, "~/.local/state"), "models.json"));
  return { agentDir, url, secretFile, modelsFile, problem };
}

/** The models of the gateway's file, a fixed list without it. */
export function loadModels(file: string): Json[] {
  try {
    const { models } = JSON.parse(readFileSync(file, "utf8"));
    if (models.length > 0) return models;
  } catch { /* the gateway has not run yet */ }
  return STATIC;
}

/** A model as Pi wants it; docs/pi-protocol.md says why the numbers are what they are. */
export function piModel({ id, name, reasoning, contextWindow }: Json): Json {
  const listed: string[] = (reasoning?.efforts ?? []).map((effort: Json) => effort.id);
  const efforts = listed.length > 0 ? listed : ["low", "medium", "high"];
  return {
    id, name: name || id, reasoning: Boolean(reasoning), input: ["text", "image"],
    ...(reasoning && { thinkingLevelMap: Object.fromEntries(LEVELS.map((level) => [level, efforts.includes(level) ? level : null])) }),
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }, contextWindow: (contextWindow || 256_000) + 32_768, maxTokens: 0,
  };
}
