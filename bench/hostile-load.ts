/**
 * Hostile requests against an API, from a process of their own. Started by `startHostileLoad`. The addresses of the
 * requests are 127.0.0.2 and up: those of an ordinary client are never among them.
 */
import { once } from "node:events";
import { Agent, request } from "node:http";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { answerEach, startModule } from "./own-process.ts";

/** The service under load, and a team of the hostile client. */
export interface Target {
  /** Base URL of the API. */
  api: string;
  key: string;
  newsletterId: string;
  listId: string;
  /** The unsubscribe link of a mail. */
  link: string;
}

/** Requests by the status of their answers; `refused` are connections that the API closed without one. */
export type Answers = Record<string, number>;

interface Load {
  target: Target;
  signal: AbortSignal;
  count(answer: string): void;
}

const BASE = "127.0.0.";
const FIRST_ADDRESS = 2;
/** Connections that stay open without a request, and the addresses they come from. */
const IDLE_CONNECTIONS = 5_000;
const IDLE_ADDRESSES = 20;
const SLOW_UPLOADS = 200;
/** Requests of one kind at once. */
const IN_FLIGHT = 8;
const LIST_IN_FLIGHT = 16;
/** The connections of one address that post one unsubscribe link. */
const LINK_IN_FLIGHT = 200;

const agent = new Agent({ keepAlive: true, localAddress: `${BASE}${FIRST_ADDRESS}` });

interface Call {
  method?: string;
  /** Below the API's base URL, or a whole URL. */
  path: string;
  body?: Buffer | string;
  headers?: Record<string, string>;
}

/** One request. @returns its status, or `refused` */
function ask({ target: { api, key }, signal }: Load, { method = "GET", path, body, headers }: Call): Promise<string> {
  return new Promise((resolve) => {
    const sent = request(
      path.startsWith("/") ? `${api}${path}` : path,
      { method, agent, signal, headers: { "x-api-key": key, "content-type": "application/json", ...headers } },
      (answer) => {
        answer.resume().once("error", () => resolve("refused"));
        answer.once("end", () => resolve(String(answer.statusCode)));
      },
    );
    sent.once("error", () => resolve("refused"));
    sent.end(body);
  });
}

/** Repeats calls, so many at once, until the load is ended. */
async function flood(load: Load, lanes: number, next: (n: number) => Call): Promise<void> {
  let n = 0;
  const lane = async () => {
    while (!load.signal.aborted) {
      const answer = await ask(load, next(n++));
      if (!load.signal.aborted) load.count(answer);
      // A refusal is the quickest answer: without a pause the load is the client's own CPU.
      await delay(5);
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}

const draft = (fields: Record<string, string>): Call => ({
  method: "POST",
  path: "/newsletters",
  body: JSON.stringify({ name: "Hostile", ...fields }),
});

const TEMPLATES = [
  "{{ first_name }}".repeat(60_000),
  "{% if email %}".repeat(20_000),
  "{% for i in (1..100000000) %}x{% endfor %}",
  "{% assign a = 'xxxxxxxxxxxxxxxx' %}".concat("{% assign a = a | append: a %}".repeat(60)),
  `${"{%".repeat(200_000)}`,
];

const TEXTS = [
  "{".repeat(400_000),
  `<p>${"{{".repeat(100_000)}</p>`,
  "<div>".repeat(100_000),
  `<a href="${"<".repeat(300_000)}">`,
  "<!--".repeat(100_000),
];

const WIDE = `{"name":"x","a":[${"0,".repeat(1_000_000)}0]}`;
const DEEP = "[".repeat(1_000_000);
const KEYS = `{${Array.from({ length: 150_000 }, (_, i) => `"k${i}":0`).join(",")}}`;
const BODIES = [WIDE, DEEP, KEYS, "0".repeat(64 * 1024 * 1024)].map((body) => gzipSync(body));

const LISTS = ["created_at", "updated_at"].flatMap((sort) =>
  ["asc", "desc"].flatMap((order) =>
    ["/subscribers", "/newsletters", "/suppressions"].map((path) => `${path}?limit=100&sort=${sort}&order=${order}`),
  ),
);

function openSocket({ target: { api }, count, signal }: Load, localAddress: string): Socket {
  const { hostname, port } = new URL(api);
  const socket = connect({ host: hostname, port: Number(port), localAddress });
  socket.once("error", () => signal.aborted || count("refused"));
  socket.once("data", (data) => count(/^HTTP\/1\.1 (\d+)/.exec(data.toString("latin1"))?.[1] ?? "refused"));
  signal.addEventListener("abort", () => socket.destroy(), { once: true });
  return socket;
}

async function until(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, "abort");
}

/** The kinds of hostile requests; each runs until its signal is aborted. */
const KINDS: Record<string, (load: Load) => Promise<void>> = {
  "template bombs": (load) =>
    flood(load, IN_FLIGHT, (n) =>
      n % 2 === 0
        ? draft({ body: TEMPLATES[n % TEMPLATES.length] ?? "" })
        : draft({ subject: (TEMPLATES[n % TEMPLATES.length] ?? "").slice(0, 500) }),
    ),
  "text bombs": (load) =>
    flood(load, IN_FLIGHT, (n) =>
      n % 2 === 0
        ? {
            method: "PATCH",
            path: `/newsletters/${load.target.newsletterId}`,
            body: JSON.stringify({ body: `<html><body>${TEXTS[(n / 2) % TEXTS.length]}</body></html>` }),
          }
        : { method: "POST", path: `/newsletters/${load.target.newsletterId}/send-preview` },
    ),
  "wide and deep bodies": (load) =>
    flood(load, IN_FLIGHT, (n) => ({
      method: "POST",
      path: "/lists",
      body: BODIES[n % BODIES.length] ?? "",
      headers: { "content-encoding": "gzip" },
    })),
  "slow uploads": async (load) => {
    const sockets = Array.from({ length: SLOW_UPLOADS }, () => {
      const socket = openSocket(load, `${BASE}${FIRST_ADDRESS + 1}`);
      socket.write(
        `POST /api/v2/lists HTTP/1.1\r\nhost: x\r\nx-api-key: ${load.target.key}\r\n` +
          "content-type: application/json\r\ncontent-length: 2000000\r\n\r\n",
      );
      socket.write(" ".repeat(1_900_000));
      return socket;
    });
    while (!load.signal.aborted) {
      for (const socket of sockets) if (socket.writable) socket.write(" ");
      await delay(1_000);
    }
  },
  "header floods": async (load) => {
    const lines = Array.from({ length: 1_500 }, (_, i) => `x-h${i}: 0\r\n`).join("");
    while (!load.signal.aborted) {
      for (let i = 0; i < 50; i++) {
        const socket = openSocket(load, `${BASE}${FIRST_ADDRESS + 2}`);
        socket.write(`GET /api/v2/me HTTP/1.1\r\nhost: x\r\n${lines}${i % 2 === 0 ? "\r\n" : ""}`);
        socket.setTimeout(10_000, () => socket.destroy());
      }
      await delay(250);
    }
  },
  "pipelined requests": async (load) => {
    const get = `GET /api/v2/newsletters?limit=100 HTTP/1.1\r\nhost: x\r\nx-api-key: ${load.target.key}\r\n\r\n`;
    while (!load.signal.aborted) {
      for (let i = 0; i < 20; i++) {
        const socket = openSocket(load, `${BASE}${FIRST_ADDRESS + 2}`);
        // Half of them never read an answer.
        if (i % 2 === 0) socket.pause();
        socket.write(get.repeat(i % 2 === 0 ? 8 : 1_000));
        socket.setTimeout(10_000, () => socket.destroy());
      }
      await delay(1_000);
    }
  },
  "idle connections": async (load) => {
    for (let i = 0; i < IDLE_CONNECTIONS && !load.signal.aborted; i++) {
      openSocket(load, `${BASE}${FIRST_ADDRESS + 3 + (i % IDLE_ADDRESSES)}`);
      if (i % 100 === 0) await delay(10);
    }
    await until(load.signal);
  },
  "list pages": (load) =>
    flood(load, LIST_IN_FLIGHT, (n) => ({
      path: n % 4 === 0 ? `/lists/${load.target.listId}/subscribers?limit=100` : (LISTS[n % LISTS.length] ?? "/me"),
    })),
  "one unsubscribe link": (load) =>
    flood(load, LINK_IN_FLIGHT, () => ({
      method: "POST",
      path: load.target.link,
      body: "List-Unsubscribe=One-Click",
      headers: { "content-type": "application/x-www-form-urlencoded" },
    })),
};

/** Names of all kinds of hostile requests. */
export const HOSTILE_KINDS = Object.keys(KINDS);

/** A process that sends hostile requests. */
export interface HostileLoad {
  /** Sends these kinds at once. @returns a function that ends it and gives the answers by kind */
  begin(kinds: readonly string[]): Promise<() => Promise<Record<string, Answers>>>;
  close(): void;
}

/** Starts a process that loads the target. */
export function startHostileLoad(target: Target): HostileLoad {
  const { ask, close } = startModule(import.meta.filename);
  return {
    begin: async (kinds) => {
      await ask({ target, kinds });
      return () => ask("end");
    },
    close,
  };
}

function main(): void {
  let end: () => unknown = () => {};
  answerEach((message: { target: Target; kinds: string[] } | "end") => {
    if (message === "end") return end();
    const aborted = new AbortController();
    const answers: Record<string, Answers> = {};
    const running = message.kinds.map((kind) => {
      const counted: Answers = {};
      answers[kind] = counted;
      const count = (answer: string) => {
        counted[answer] = (counted[answer] ?? 0) + 1;
      };
      return KINDS[kind]?.({ target: message.target, signal: aborted.signal, count });
    });
    end = async () => {
      aborted.abort();
      await Promise.all(running);
      return answers;
    };
    return "begun";
  });
}

if (import.meta.main) main();
