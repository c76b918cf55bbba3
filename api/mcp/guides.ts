import { ResourceNotFoundError, type Tool } from "@modelcontextprotocol/server";
import { BASE_PATH } from "../base-path.ts";
import type { Deps } from "../deps.ts";
import { factsOf } from "../docs/facts.ts";
import { GUIDES, markdownOf } from "../docs/guides.ts";
import { shortened } from "../rest/messages.ts";

const mimeType = "text/markdown";
const nameOf = (path: string): string => path.slice("/docs/".length);
const NAMES = GUIDES.map(({ path }) => nameOf(path));

/** For clients that have tools and no resources. */
export const READ_GUIDE = {
  name: "readGuide",
  description: "Read a guide of Mailkeel, in Markdown",
  inputSchema: { type: "object", properties: { guide: { type: "string", enum: NAMES } }, required: ["guide"] },
  annotations: { readOnlyHint: true },
} satisfies Tool;

/** The guides as resources of MCP; each has the URL of its page. */
export function guidesOf({ env }: Pick<Deps, "env">) {
  const { origin } = new URL(env.PUBLIC_URL);
  const texts = new Map<string, string>();
  return {
    resources: GUIDES.map(({ path, title }) => ({ uri: origin + path, name: nameOf(path), title, mimeType })),
    /**
     * @param asked the name of a guide, or its URL, also with a fragment as the `doc_url` of an error
     * @throws {ResourceNotFoundError} a guide that does not exist
     */
    read(asked: unknown) {
      const name = typeof asked === "string" ? asked.replace(/#.*/s, "") : "";
      const guide = GUIDES.find(({ path }) => name === nameOf(path) || name === origin + path);
      if (!guide) throw new ResourceNotFoundError(shortened(name), `The guides are ${NAMES.join(", ")}.`);
      const { path } = guide;
      const text = texts.get(path) ?? markdownOf(guide, factsOf(env, BASE_PATH));
      texts.set(path, text);
      return { contents: [{ uri: origin + path, mimeType, text }] };
    },
  };
}
