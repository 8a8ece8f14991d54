// What `grok-gateway pi install` has written to <agentDir>/grok-ws.json.
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

/** A JSON object, or something of Pi's: its types come in two packages, one for each version. */
export type Json = Record<string, any>;

const readJson = (file: string | URL): any => JSON.parse(readFileSync(file, "utf8"));

/** What came with the extension: models for as long as the gateway has not run, completions of `/grok`. */
export const SHIPPED: Record<"models" | "commands", Json[]> = readJson(new URL("shipped.json", import.meta.url));

export function agentDir(): string {
  return process.env.PI_CODING_AGENT_DIR?.replace(/^~(?=\/)/, homedir()) || join(homedir(), ".pi/agent");
}

/** The models that the gateway has written down, as `registerProvider` takes them. */
export function loadModels(): Json[] {
  try {
    return readJson(readJson(join(agentDir(), "grok-ws.json")).modelsFile).pi;
  } catch {
    return SHIPPED.models;
  }
}

/** Where to connect, and the header that proves who we are; read each time. Throws an error for people. */
export function loadAddress(): { url: string; authorization: string } {
  const file = join(agentDir(), "grok-ws.json");
  try {
    const { url, secretFile } = readJson(file);
    const { protocol, hostname, host } = new URL(process.env.GROK_ACP_URL || url);
    const here = protocol === "ws:" && ["127.0.0.1", "localhost", "[::1]"].includes(hostname);
    if (!here) throw new Error("the url must be ws:// and on this machine");
    const authorization = `Bearer ${readFileSync(secretFile, "utf8").trim()}`;
    return { url: `ws://${host}/pi`, authorization }; // whatever path was named: some files have /ws
  } catch (error) {
    throw new Error(`${file} cannot be used: ${(error as Error).message}. ` +
      `\`grok-gateway up\` makes the secret, \`grok-gateway pi install\` writes ${file}.`);
  }
}
