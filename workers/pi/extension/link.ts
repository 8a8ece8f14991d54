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
  /** The socket is introduced. What this sends goes out before anything else; it may be called again. */
  arrived(welcome: Json): Promise<void>;
  /** Neither the old socket nor a new one is to be had. */
  lost(text: string): void;
  /** A request or notification of the gateway; undefined = there is no such method. */
  received(method: string, params: Json): unknown;
}

export class Link {
  #settings: Settings;
  #host: Host;
  #conn = "";
  #socket: WebSocket | undefined;
  #opening: Promise<void> | undefined;
  #open = new Map<number, { resolve: (value: any) => void; reject: (error: Error) => void }>();
  #ids = 0;
  #end = new AbortController(); // Pi hangs at its end on a timer that is left

  constructor(settings: Settings, host: Host) { this.#settings = settings; this.#host = host; }

  get open(): boolean { return this.#socket?.readyState === 1 && !this.#opening; }

  /** Wait for an introduced socket. Throws a Failure. */
  ready(): Promise<void> {
    if (this.open) return Promise.resolve();
    return (this.#opening ??= this.#connect().finally(() => (this.#opening = undefined)));
  }

  /** The result of a request. Throws the gateway's error, or a `busy` Failure when the socket is lost meanwhile. */
  request(method: string, params: Json): Promise<any> {
    const id = ++this.#ids;
    return new Promise((resolve, reject) => {
      this.#open.set(id, { resolve, reject });
      if (!this.#send({ id, method, params })) this.#drop();
    });
  }

  /** Dropped without a socket. */
  notify(method: string, params: Json): void { this.#send({ method, params }); }

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
    const open = [...this.#open.values()];
    this.#open.clear();
    for (const { reject } of open) reject(new Failure("busy", `The Grok gateway at ${this.#settings.url} is not there at the moment. Try again; \`grok-gateway status\` says more.`));
  }

  async #connect(): Promise<void> {
    const { problem, url } = this.#settings;
    if (problem) throw new Failure("fatal", problem);
    if (typeof WebSocket === "undefined") throw new Failure("fatal", `Grok needs a Pi that runs on Node.js 22 or newer; this one runs on ${process.version}.`);
    const resuming = this.#conn !== "", until = Date.now() + (resuming ? GONE : STARTING);
    for (let attempt = 1, pause = 100; ; attempt++, pause = Math.min(2 * pause, 5000)) {
      // A connection that is not known any more is refused too: every second try asks for a new one.
      const conn = attempt % 2 ? this.#conn : "";
      try {
        return await this.#introduce(await this.#dial(conn), conn);
      } catch (error) {
        const failure = error instanceof Failure ? error : new Failure("fatal", (error as Error).message);
        if (failure.kind === "fatal" || (failure.kind === "nobody" && !resuming) || Date.now() + pause > until || this.#end.signal.aborted) {
          this.#conn = "";
          throw failure;
        }
        await sleep(pause, undefined, { signal: this.#end.signal }).catch(() => { throw new Failure("fatal", `Pi left ${url}.`); });
      }
    }
  }

  #dial(conn: string): Promise<WebSocket> {
    const secret = this.#secret();
    const headers = { authorization: `Bearer ${secret}`, ...(conn && { "Grok-Gateway-Connection": conn, "Grok-Gateway-Received": "0" }) };
    const socket = new WebSocket(this.#settings.url, { headers } as any); // Node's: the standard has no headers
    return new Promise((resolve, reject) => {
      const fail = () => { clearTimeout(timer); this.#why(secret).then(reject); };
      const timer = setTimeout(() => { socket.onclose = null; socket.close(); fail(); }, DIAL);
      socket.onclose = fail;
      socket.onopen = () => {
        clearTimeout(timer);
        socket.onclose = (event) => this.#closed(socket, event.code);
        socket.onmessage = (event) => void this.#received(socket, String(event.data));
        resolve(socket);
      };
    });
  }

  #secret(): string {
    const { secretFile } = this.#settings;
    try {
      return readFileSync(secretFile, "utf8").trim();
    } catch (error) {
      throw new Failure("fatal", `The secret of the Grok gateway cannot be read: ${secretFile} (${(error as NodeJS.ErrnoException).code}). \`grok-gateway up\` makes it, \`grok-gateway pi install\` tells Pi where it is.`);
    }
  }

  /** Why a handshake failed, which Node's WebSocket does not tell: the port is asked by plain HTTP. */
  #why(secret: string): Promise<Failure> {
    const { url, secretFile } = this.#settings;
    return new Promise((resolve) => {
      const request = get(url.replace("ws:", "http:"), { headers: { authorization: `Bearer ${secret}` }, timeout: 5000 }, (answer) => {
        answer.resume();
        if (answer.statusCode === 426) resolve(new Failure("busy", `The Grok gateway at ${url} has no worker for a new client. \`grok-gateway status\` says why.`));
        else if (answer.statusCode === 401) resolve(new Failure("fatal", `The Grok gateway at ${url} does not accept the secret in ${secretFile}, which is another instance's. \`grok-gateway pi install\` sets the right one.`));
        else resolve(new Failure("fatal", `What answers at ${url} is no Grok gateway. \`grok-gateway pi install\` sets the right address.`));
      });
      request.on("timeout", () => request.destroy());
      request.on("error", () => resolve(new Failure("nobody", `No Grok gateway answers at ${url}. Start it with \`grok-gateway up\`; \`grok-gateway doctor\` looks for what is wrong.`)));
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
    if (this.#opening) return; // the loop of #connect sees the request fail
    if (code === 1001) {
      this.#conn = "";
      this.#host.lost("The Grok gateway was stopped. `grok-gateway up` starts it; then send the message again.");
    } else this.ready().catch((error: Error) => this.#end.signal.aborted || this.#host.lost(error.message));
  }

  async #received(socket: WebSocket, data: string): Promise<void> {
    const { id, method, params, result, error } = JSON.parse(data);
    if (method === undefined) {
      const call = this.#open.get(id);
      this.#open.delete(id);
      if (error) call?.reject(new Failure("fatal", error.message));
      else call?.resolve(result);
      return;
    }
    let answer: Json;
    try {
      const value = await this.#host.received(method, params ?? {});
      answer = value === undefined ? { error: { code: -32601, message: `Method not found: ${method}` } } : { result: value };
    } catch (failure) {
      answer = { error: { code: -32603, message: (failure as Error).message } };
    }
    if (id !== undefined && socket === this.#socket) this.#send({ id, ...answer });
  }
}
