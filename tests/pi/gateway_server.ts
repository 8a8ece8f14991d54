// A scripted gateway for the shell: WebSocket by hand (Node has no server), JSON-RPC, and what was received.
import { createHash } from "node:crypto";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";

type Json = Record<string, any>;

export class Peer {
  headers: IncomingHttpHeaders;
  closed: Promise<number>;
  #socket: Duplex;
  #data = Buffer.alloc(0);
  #end = Promise.withResolvers<number>();
  #text: (text: string) => void;

  constructor(socket: Duplex, headers: IncomingHttpHeaders, text: (peer: Peer, text: string) => void) {
    this.headers = headers;
    this.#socket = socket;
    this.#text = (data) => text(this, data);
    this.closed = this.#end.promise;
    socket.on("data", (data) => this.#feed(data));
    socket.on("error", () => {});
    socket.on("close", () => this.#end.resolve(1006));
  }

  send(message: Json): void { this.#frame(1, Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message }))); }
  close(code: number): void { this.#frame(8, Buffer.from([code >> 8, code & 255])); this.#socket.end(); }
  drop(): void { this.#socket.destroy(); }

  #frame(opcode: number, body: Buffer): void {
    const size = body.length < 126 ? Buffer.from([0x80 | opcode, body.length]) : Buffer.from([0x80 | opcode, 126, body.length >> 8, body.length & 255]);
    this.#socket.write(Buffer.concat([size, body]));
  }

  #feed(data: Buffer): void {
    this.#data = Buffer.concat([this.#data, data]);
    for (;;) {
      const short = this.#data.length >= 2 ? this.#data[1]! & 127 : 0, head = short === 127 ? 14 : short === 126 ? 8 : 6;
      if (this.#data.length < head) return;
      const size = short === 127 ? Number(this.#data.readBigUInt64BE(2)) : short === 126 ? this.#data.readUInt16BE(2) : short;
      if (this.#data.length < head + size) return;
      const opcode = this.#data[0]! & 15, mask = this.#data.subarray(head - 4, head);
      const body = Buffer.from(this.#data.subarray(head, head + size).map((byte, i) => byte ^ mask[i % 4]!));
      this.#data = this.#data.subarray(head + size);
      if (opcode === 1) this.#text(body.toString());
      if (opcode === 8) { this.#end.resolve(body.readUInt16BE(0)); this.#socket.end(); }
    }
  }
}

/** `answers[method](params)` is the result of a request, undefined: `answer` gives it later; everything received is in `log`. */
export class Server {
  answers: Record<string, (params: Json, peer: Peer) => unknown>;
  log: { id: unknown; method: string; params: Json }[] = [];
  results = new Map<unknown, Json>();
  peers: Peer[] = [];
  refusals = 0; // handshakes to refuse
  #http = createServer((_request, response) => { response.statusCode = 426; response.end(); });
  #waiting: (() => void)[] = [];

  constructor(answers: Server["answers"]) {
    this.answers = { hello: () => ({ v: 1, conn: "c".repeat(32)  }), session: () => ({ state: "new" }), ...answers };
    this.#http.on("upgrade", (request, socket) => {
      if (this.refusals-- > 0) return socket.end("HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n");
      const key = createHash("sha1").update(`${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
      socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${key}\r\n\r\n`);
      this.peers.push(new Peer(socket, request.headers, (peer, text) => this.#received(peer, JSON.parse(text))));
    });
  }

  get peer(): Peer { return this.peers.at(-1)!; }
  get methods(): string[] { return this.log.map(({ method }) => method); }
  params(method: string): Json[] { return this.log.filter((entry) => entry.method === method).map(({ params }) => params); }

  listen(): Promise<number> {
    return new Promise((resolve) => this.#http.listen(0, "127.0.0.1", () => resolve((this.#http.address() as AddressInfo).port)));
  }
  stop(): void { this.peers.forEach((peer) => peer.drop()); this.#http.close(); this.#http.closeAllConnections(); }

  /** Wait until something is true that follows from what is received. */
  async until(wanted: () => unknown): Promise<void> {
    while (!wanted()) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /** The result of the newest request of this kind. */
  answer(method: string, result: Json): void { this.peer.send({ id: this.log.findLast((entry) => entry.method === method)!.id, result }); }

  /** A request of the gateway; its result. */
  async request(id: string, method: string, params: Json): Promise<Json> {
    this.peer.send({ id, method, params });
    await this.until(() => this.results.has(id));
    return this.results.get(id)!;
  }

  #received(peer: Peer, { id, method, params, result, error }: Json): void {
    if (method === undefined) this.results.set(id, result ?? { error });
    else {
      this.log.push({ id, method, params });
      const answer = this.answers[method]?.(params, peer);
      if (id !== undefined && answer !== undefined) peer.send(answer instanceof Error ? { id, error: { code: -32000, message: answer.message } } : { id, result: answer });
    }
    for (const wake of this.#waiting.splice(0)) wake();
  }
}
