// Where the gateway is: environment, then <agentDir>/grok-ws.json (written by `grok-gateway pi install`), then defaults.
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import type { Json } from "./pi.ts";

const LEVELS = ["off", "minimal", "low", "medium", "high", "xhigh", "max"];
const STATIC = ["grok-4.7", "grok-4.7-build-fast", "grok-4.6", "grok-4.5"].map((id) => ({
  id, name: id, contextWindow: 256_000, reasoning: { efforts: ["low", "medium", "high", "xhigh"].map((level) => ({ id: level })) },
}));

/** `problem`: why the settings cannot be used, a text for people. */
export interface Settings { agentDir: string; url: string; secretFile: string; modelsFile: string; problem: string }

export function loadSettings(env: NodeJS.ProcessEnv = process.env): Settings {
  const agentDir = expand(env.PI_CODING_AGENT_DIR || join(homedir(), ".pi", "agent"));
  const file = join(agentDir, "grok-ws.json");
  let data: Json = {}, problem = "";
  try {
    data = JSON.parse(readFileSync(file, "utf8"));
    if (typeof data !== "object" || data === null || Array.isArray(data)) throw new Error("it must hold a JSON object");
  } catch (error) {
    data = {};
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") problem = `${file}: ${(error as Error).message}. Correct it or remove it.`;
  }
  const home = env.GROK_GATEWAY_HOME;
  const config = home ? join(home, "config") : join(env.XDG_CONFIG_HOME || join(homedir(), ".config"), "grok-gateway");
  const state = home ? join(home, "state") : join(env.XDG_STATE_HOME || join(homedir(), ".local", "state"), "grok-gateway");
  const named = (key: string, fallback: string): string => (!home && typeof data[key] === "string" ? expand(data[key]) : fallback);
  const port = env.GROK_GATEWAY_PORT && `ws://127.0.0.1:${env.GROK_GATEWAY_PORT}`;
  const given = env.GROK_ACP_URL || port || (typeof data.url === "string" && data.url) || "ws://127.0.0.1:2419";
  let url = "ws://127.0.0.1:2419/pi";
  try {
    const parsed = new URL(given);
    if (parsed.protocol !== "ws:" || !["127.0.0.1", "localhost", "[::1]"].includes(parsed.hostname)) throw new Error();
    url = `ws://${parsed.host}/pi`; // the reference implementation wrote /ws here
  } catch {
    problem ||= `url in ${file} or GROK_ACP_URL: must be ws:// on 127.0.0.1, as in ws://127.0.0.1:2419/pi.`;
  }
  return { agentDir, url, secretFile: named("secretFile", join(config, "secret")), modelsFile: named("modelsFile", join(state, "models.json")), problem };
}

/** The models of the gateway's file; a fixed list without it. */
export function loadModels(file: string): Json[] {
  try {
    const models = JSON.parse(readFileSync(file, "utf8")).models;
    if (Array.isArray(models) && models.length > 0) return models;
  } catch { /* the gateway has not run yet */ }
  return STATIC;
}

/** How Pi knows a model. See docs/pi-protocol.md for why the numbers are what they are. */
export function piModel(model: Json): Json {
  const efforts: string[] = (model.reasoning?.efforts ?? []).map((effort: Json) => effort.id);
  const known = efforts.length > 0 ? efforts : ["low", "medium", "high"];
  return {
    id: model.id, name: model.name || model.id, reasoning: Boolean(model.reasoning),
    ...(model.reasoning ? { thinkingLevelMap: Object.fromEntries(LEVELS.map((l) => [l, known.includes(l) ? l : null])) } : {}),
    input: ["text", "image"], cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
    contextWindow: (model.contextWindow || 256_000) + 32_768, maxTokens: 0,
  };
}

function expand(path: string): string {
  return path.startsWith("~/") ? join(homedir(), path.slice(2)) : path;
}
