// The socket to the gateway: JSON-RPC 2.0 both ways, opened when it is needed and again when it is lost.
import { setTimeout as sleep } from "node:timers/promises";
import { type Json, loadAddress } from "./settings.ts";

const KEPT = 60_000; // ms that the gateway keeps a connection which nobody comes back to
const DIAL = 10_000; // ms for one handshake
const AWAY = "The Grok gateway went away for a moment. Try again; `grok-gateway status` says more.";
const STOPPED = "The Grok gateway was stopped. Start it with `grok-gateway up` and send the message again.";

/** Something that may pass by itself. This text, as that of every other error here, is for people. */
export class Passing extends Error {}

export abstract class Link {
  #conn = "";
  #socket: WebSocket | undefined;
  #opening: Promise<void> | undefined;
  #calls = new Map<number, PromiseWithResolvers<any>>();
  #ids = 0;
  #end = new AbortController(); // Pi hangs at its end on a timer that is left

  /** Say hello, and what must be said before anything else; the connection's id. */
  protected abstract introduce(conn: string): Promise<string>;
  /** Neither the old socket nor a new one is to be had. */
  protected abstract lost(): void;
  protected abstract methods: Record<string, (params: Json) => unknown>;

  /** Wait for an introduced socket. */
  async ready(): Promise<void> {
    if (this.#socket && !this.#opening) return;
    await (this.#opening ??= this.#connect().finally(() => (this.#opening = undefined)));
  }

  /** The result of a request. Throws the gateway's error, or why the socket was lost meanwhile. */
  request(method: string, params: Json): Promise<any> {
    const call = Promise.withResolvers<any>(), id = ++this.#ids;
    this.#calls.set(id, call);
    if (!this.#send({ id, method, params })) this.#drop(new Passing(AWAY));
    return call.promise;
  }

  /** Dropped without a socket. */
  notify(method: string, params: Json): void { this.#send({ method, params }); }

  close(): void {
    this.#end.abort();
    this.#drop(new Error(STOPPED));
  }

  #send(message: Json): boolean {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
    return true;
  }

  #drop(why: Error): void {
    this.#socket = undefined;
    for (const { reject } of this.#calls.values()) reject(why);
    this.#calls.clear();
  }

  async #connect(): Promise<void> {
    const until = Date.now() + KEPT;
    for (let pause = 100, conn = this.#conn; ; pause = Math.min(2 * pause, 5000)) {
      try {
        await this.#dial(conn);
        this.#conn = await this.introduce(conn);
        return;
      } catch (error) {
        this.#socket?.close(1000);
        this.#drop(error as Error);
        if (error instanceof Passing && Date.now() + pause < until) {
          conn = conn ? "" : this.#conn; // it may be unknown by now: every second try asks for a new one
          await sleep(pause, undefined, { signal: this.#end.signal });
          continue;
        }
        this.#conn = "";
        throw new Error((error as Error).message);
      }
    }
  }

  async #dial(conn: string): Promise<void> {
    const { url, authorization } = loadAddress();
    const back = conn && { "Grok-Gateway-Connection": conn, "Grok-Gateway-Received": "0" };
    const options: any = { headers: { authorization, ...back } }; // Node's own: the standard has no headers
    const socket = new WebSocket(url, options);
    this.#end.signal.addEventListener("abort", () => socket.close(1000));
    const opened = await new Promise((resolve) => {
      socket.onopen = () => resolve(true);
      socket.onclose = socket.onerror = () => resolve(false); // no close event for a refused handshake
      setTimeout(resolve, DIAL).unref();
    });
    if (!opened) throw await this.#why(url, authorization);
    socket.onclose = ({ code }) => socket === this.#socket && this.#closed(code);
    socket.onmessage = ({ data }) => void this.#received(socket, JSON.parse(data));
    this.#socket = socket;
  }

  /** Why a handshake failed, which Node's WebSocket does not tell: the port is asked by plain HTTP. */
  async #why(url: string, authorization: string): Promise<Error> {
    const options = { headers: { authorization }, signal: AbortSignal.timeout(DIAL) };
    const { status } = await fetch(url.replace("ws:", "http:"), options).catch(() => ({ status: 0 }));
    const gateway = `The Grok gateway at ${url}`, install = "`grok-gateway pi install` sets both";
    if (status === 426) return new Passing(`${gateway} has no worker ready. \`grok-gateway status\` says why.`);
    if (status === 401) return new Error(`${gateway} has another secret than the file. ${install}.`);
    if (status) return new Error(`What answers at ${url} is no Grok gateway. ${install}.`);
    const nobody = `No Grok gateway answers at ${url}. Start it: \`grok-gateway up\`.`;
    return this.#conn ? new Passing(nobody) : new Error(nobody); // it was there a moment ago
  }

  #closed(code: number): void {
    this.#drop(code === 1001 ? new Error(STOPPED) : new Passing(AWAY));
    if (code !== 1001) return void this.ready().catch(() => this.lost());
    this.#conn = "";
    this.lost();
  }

  async #received(socket: WebSocket, { id, method, params, result, error }: Json): Promise<void> {
    if (method === undefined) {
      const call = this.#calls.get(id);
      this.#calls.delete(id);
      return error ? call?.reject(new Error(error.message)) : call?.resolve(result);
    }
    const serve = async () => this.methods[method]!(params);
    const code = method in this.methods ? -32603 : -32601;
    const failed = ({ message }: Error) => ({ error: { code, message } });
    const answer = await serve().then((value) => ({ result: value ?? null }), failed);
    if (id !== undefined && socket === this.#socket) this.#send({ id, ...answer });
  }
}
