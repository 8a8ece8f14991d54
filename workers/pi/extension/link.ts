// The socket to the gateway: JSON-RPC 2.0 in both directions, opened when it is needed and again when it is lost.
import { readFileSync } from "node:fs";
import { get } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { Json } from "./pi.ts";
import type { Settings } from "./settings.ts";

const GONE = 60_000; // ms that the gateway keeps a connection which nobody comes back to
const STARTING = 20_000; // ms in which a gateway that runs should have a worker ready
const DIAL = 10_000; // ms for one handshake

/** `busy`: it may pass; `nobody`: nothing listens; `fatal`: somebody must act. The text is for people. */
export class Failure extends Error {
  kind: "busy" | "nobody" | "fatal";
  constructor(kind: Failure["kind"], text: string) { super(text); this.kind = kind; }
}

export interface Host {
  hello(conn: string): Json;
  arrived(welcome: Json): Promise<void>; // what it sends goes out before anything else
  lost(text: string): void; // neither the old socket nor a new one is to be had
  received(method: string, params: Json): unknown; // undefined = there is no such method
}

export class Link {
  #conn = "";
  #socket: WebSocket | undefined;
  #opening: Promise<void> | undefined;
  #calls = new Map<number, { resolve: (value: any) => void; reject: (error: Error) => void }>();
  #ids = 0;
  #end = new AbortController(); // Pi hangs at its end on a timer that is left
  #settings: Settings;
  #host: Host;
  constructor(settings: Settings, host: Host) { this.#settings = settings; this.#host = host; }

  get open(): boolean { return this.#socket?.readyState === 1 && !this.#opening; }

  /** Wait for an introduced socket. Throws a Failure. */
  async ready(): Promise<void> {
    if (!this.open) await (this.#opening ??= this.#connect().finally(() => (this.#opening = undefined)));
  }

  /** The result of a request. Throws the gateway's error, or a `busy` Failure if the socket is lost meanwhile. */
  request(method: string, params: Json): Promise<any> {
    const id = ++this.#ids;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
      if (!this.notify(method, params, id)) this.#drop();
    });
  }

  /** Dropped without a socket. */
  notify(method: string, params: Json, id?: number): boolean { return this.#send({ id, method, params }); }

  close(): void {
    this.#end.abort();
    this.#socket?.close(1000);
    this.#socket = undefined;
    this.#drop();
  }

  #send(message: Json): boolean {
    if (this.#socket?.readyState !== 1) return false;
    this.#socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
    return true;
  }

  #drop(): void {
    const text = `The Grok gateway at ${this.#settings.url} went away for a moment. Try again; \`grok-gateway status\` says more.`;
    for (const { reject } of this.#calls.values()) reject(new Failure("busy", text));
    this.#calls.clear();
  }

  async #connect(): Promise<void> {
    const resuming = this.#conn !== "", until = Date.now() + (resuming ? GONE : STARTING);
    if (this.#settings.problem) throw new Failure("fatal", this.#settings.problem);
    if (typeof WebSocket === "undefined") throw new Failure("fatal", `Grok needs Node.js 22 or newer; this Pi runs on ${process.version}.`);
    for (let attempt = 1, pause = 100; ; attempt++, pause = Math.min(2 * pause, 5000)) {
      const conn = attempt % 2 ? this.#conn : ""; // refused may mean unknown by now: every second try asks for a new one
      try {
        return await this.#introduce(await this.#dial(conn), conn);
      } catch (error) {
        const failure = error instanceof Failure ? error : new Failure("fatal", (error as Error).message);
        const again = failure.kind === "busy" || (failure.kind === "nobody" && resuming);
        if (!again || Date.now() + pause > until) {
          this.#conn = "";
          throw failure;
        }
        await sleep(pause, undefined, { signal: this.#end.signal });
      }
    }
  }

  #dial(conn: string): Promise<WebSocket> {
    const { url, secretFile } = this.#settings;
    let secret: string;
    try {
      secret = readFileSync(secretFile, "utf8").trim();
    } catch (error) {
      throw new Failure("fatal", `The gateway's secret cannot be read: ${secretFile} (${(error as Json).code}). ` +
        "`grok-gateway up` makes it, `grok-gateway pi install` tells Pi where it is.");
    }
    const authorization = `Bearer ${secret}`, back = conn && { "Grok-Gateway-Connection": conn, "Grok-Gateway-Received": "0" };
    const socket = new WebSocket(url, { headers: { authorization, ...back } } as any); // Node's own: the standard has no headers
    return new Promise((resolve, reject) => {
      const fail = () => {
        clearTimeout(timer);
        socket.onclose = socket.onerror = null;
        this.#why(authorization).then(reject);
      };
      const timer = setTimeout(() => { fail(); socket.close(); }, DIAL);
      socket.onclose = socket.onerror = fail; // Node has no close event for a refused handshake
      socket.onopen = () => {
        clearTimeout(timer);
        socket.onerror = null;
        socket.onclose = (event) => this.#closed(socket, event.code);
        socket.onmessage = (event) => void this.#received(socket, JSON.parse(String(event.data)));
        resolve(socket);
      };
    });
  }

  /** Why a handshake failed, which Node's WebSocket does not tell: the port is asked by plain HTTP. */
  #why(authorization: string): Promise<Failure> {
    const { url, secretFile } = this.#settings;
    return new Promise((resolve) => {
      const asked = get(url.replace("ws:", "http:"), { headers: { authorization }, timeout: DIAL }, ({ statusCode }) => {
        asked.destroy();
        if (statusCode === 426) resolve(new Failure("busy", `The Grok gateway at ${url} has no worker ready. \`grok-gateway status\` says why.`));
        const wrong = statusCode === 401 ? `The Grok gateway at ${url} does not take the secret in ${secretFile}` : `What answers at ${url} is no Grok gateway`;
        resolve(new Failure("fatal", `${wrong}. \`grok-gateway pi install\` sets both.`));
      });
      asked.on("timeout", () => asked.destroy());
      asked.on("error", () => resolve(new Failure("nobody", `No Grok gateway answers at ${url}. Start it: \`grok-gateway up\`.`)));
    });
  }

  async #introduce(socket: WebSocket, conn: string): Promise<void> {
    this.#socket = socket;
    try {
      const welcome = await this.request("hello", this.#host.hello(conn));
      this.#conn = welcome.conn;
      await this.#host.arrived(welcome);
    } catch (error) {
      this.#socket = undefined;
      socket.close(1000);
      throw error;
    }
  }

  #closed(socket: WebSocket, code: number): void {
    if (socket !== this.#socket) return;
    this.#socket = undefined;
    this.#drop();
    if (this.#opening) return; // its loop sees the request fail
    if (code === 1001) this.#conn = "";
    if (code === 1001) this.#host.lost("The Grok gateway was stopped. Start it with `grok-gateway up` and send the message again.");
    else this.ready().catch((error: Error) => this.#host.lost(error.message));
  }

  async #received(socket: WebSocket, { id, method, params, result, error }: Json): Promise<void> {
    if (method === undefined) {
      const call = this.#calls.get(id);
      this.#calls.delete(id);
      return error ? call?.reject(new Failure("fatal", error.message)) : call?.resolve(result);
    }
    const answer: Json = { id };
    try {
      answer.result = await this.#host.received(method, params ?? {});
      if (answer.result === undefined) answer.error = { code: -32601, message: `Method not found: ${method}` };
    } catch (failure) {
      answer.error = { code: -32603, message: (failure as Error).message };
    }
    if (id !== undefined && socket === this.#socket) this.#send(answer);
  }
}
