import { globSync, readFileSync } from "node:fs";
import { relative } from "node:path";
import proto from "@temporalio/proto";

const { History } = proto.temporal.api.history.v1;
const FOLDER = import.meta.dirname;
const ROOT = `${FOLDER}/../..`;

export type WorkflowHistory = proto.temporal.api.history.v1.IHistory;

export interface RecordedHistory {
  /** Path from the root of the repository. */
  file: string;
  workflowId: string;
  history: WorkflowHistory;
}

export const historyFile = (path: string): string => `${FOLDER}/${path}.json`;

/** A history as it is kept: without the machine it was recorded on. */
export function recordedHistory(workflowId: string, history: WorkflowHistory): string {
  // The SDK's own historyToJSON does not work where npm installs more than one protobufjs.
  const { events } = History.toObject(History.fromObject(history), { longs: String, enums: String, bytes: String });
  const identities = new Set<string>();
  const content = JSON.parse(JSON.stringify({ workflowId, events }), (name, value) => {
    if (name === "identity" && value) identities.add(value);
    return name === "stackTrace" ? "" : value;
  });
  // An event a line: short, and a difference can be read.
  const lines = content.events.map((event: unknown) => `    ${JSON.stringify(event)}`);
  const text = `{\n  "workflowId": ${JSON.stringify(workflowId)},\n  "events": [\n${lines.join(",\n")}\n  ]\n}\n`;
  // A worker's identity begins the name of its own task queue, too.
  return [...identities].reduce((kept, identity) => kept.replaceAll(identity, "recorder"), text);
}

/** Those of each release, in a folder each, and those that no release has yet. */
export function readHistories(): RecordedHistory[] {
  return globSync("**/*.json", { cwd: FOLDER })
    .sort()
    .map((name) => {
      const { workflowId, events } = JSON.parse(readFileSync(`${FOLDER}/${name}`, "utf8"));
      return { file: relative(ROOT, `${FOLDER}/${name}`), workflowId, history: History.fromObject({ events }) };
    });
}

/** Every text in a history, payloads decoded. */
export function textsIn(value: unknown): string[] {
  if (typeof value === "string") return [value];
  if (value instanceof Uint8Array) return [Buffer.from(value).toString("utf8")];
  if (typeof value !== "object" || value === null) return [];
  return Object.values(value).flatMap(textsIn);
}

/** Texts that an address, a key, a token or a link of a mail may stand in. A token is a send's id and a signature; a link ends in one too. */
export const leaksOf = (texts: readonly string[]): string[] =>
  texts.filter((text) => /@|mk_(live|test)_|whsec_|send_[0-9a-z]{26}\.|\/u\/|https?:|node_modules/.test(text));
