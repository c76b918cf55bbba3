import assert from "node:assert/strict";
import { z } from "zod";
import { consoleRouter } from "../../api/console/router.ts";
import type { RouteDefinition } from "../../api/rest/definition.ts";
import { newId } from "../../domain/ids.ts";
import { makeEstate } from "../every-endpoint/endpoints.ts";
import { type Cookies, consoleFetch, signIn } from "../support/console.ts";
import { makeMember } from "../support/factories.ts";
import { addSegment } from "../support/sending.ts";

/*
 * Every procedure that the console alone has. One that takes the id of a record needs a sample of its input here, and a new
 * kind of record a line in `makeIds` and in `ABSENT`.
 */

/** Ids of the records that one team has. */
type Ids = Record<keyof typeof ABSENT, string>;

const ABSENT = {
  list: newId("list"),
  segment: newId("segment"),
  newsletter: newId("newsletter"),
  campaign: newId("campaign"),
  account: newId("account"),
  member: newId("member"),
  key: newId("apiKey"),
};

async function makeIds() {
  const estate = await makeEstate();
  const { values, owner, liveKey } = estate;
  const value = (name: string) => values[name] ?? assert.fail(`no ${name}`);
  const ids: Ids = {
    list: value("listId"),
    segment: await addSegment(estate),
    newsletter: value("newsletterId"),
    campaign: value("campaignId"),
    account: value("accountId"),
    member: (await makeMember(estate.em, estate.team.id, "EDITOR")).id,
    key: liveKey.record.id,
  };
  return { estate, ids, owner };
}

/** An input for each procedure that takes an id, in which each id is of the caller's team. */
const SAMPLES: Record<string, (ids: Ids) => unknown> = {
  "team.changeRole": ({ member }) => ({ body: { member_id: member, role: "VIEWER" } }),
  "team.removeMember": ({ member }) => ({ body: { member_id: member } }),
  "team.rotateKey": ({ key }) => ({ body: { key_id: key, grace_hours: 0 } }),
  "team.revokeKey": ({ key }) => ({ body: { key_id: key } }),
};

interface Procedure {
  name: string;
  isQuery: boolean;
  meta: RouteDefinition;
}

const PROCEDURES: Procedure[] = Object.entries(consoleRouter._def.procedures as object).flatMap(([path, { _def }]) =>
  path.startsWith("app.") ? [{ name: path.slice("app.".length), isQuery: _def.type === "query", meta: _def.meta }] : [],
);

/** Names of the fields in a schema that hold ids. */
const idsIn = ({ meta }: Procedure): string[] => {
  const text = JSON.stringify(z.toJSONSchema(meta.input, { io: "input", unrepresentable: "any" }));
  return [...text.matchAll(/"(\w*(?:_|\b)ids?|\w+Ids?)":\{/g)].map(([, name = ""]) => name);
};

async function call({ name, isQuery }: Procedure, input: unknown, teamId: string, cookies: Cookies) {
  const text = isQuery ? `?input=${encodeURIComponent(JSON.stringify(input))}` : "";
  const [method, body] = isQuery ? (["GET", undefined] as const) : (["POST", input] as const);
  const answer = await consoleFetch({ ...cookies }, method, `/trpc/app.${name}${text}`, body, {
    "mailkeel-team": teamId,
  });
  const { error } = (await answer.json()) as { error?: { message: string; data: { code: string; param?: string } } };
  return error
    ? { status: answer.status, code: error.data.code, param: error.data.param, message: error.message }
    : { status: answer.status, code: "answered" };
}

describe("Isolation of the console's procedures", () => {
  let own: Awaited<ReturnType<typeof makeIds>>;
  let foreign: Awaited<ReturnType<typeof makeIds>>;
  let cookies: Cookies;
  before(async () => {
    own = await makeIds();
    foreign = await makeIds();
    cookies = await signIn(own.owner.id);
  });

  it("has a sample for each procedure that takes an id, and no other", () => {
    const taking = PROCEDURES.filter((procedure) => idsIn(procedure).length > 0).map(({ name }) => name);
    assert.deepEqual(
      taking.filter((name) => !SAMPLES[name]),
      [],
      "add an input to SAMPLES",
    );
    const known = new Set(PROCEDURES.map(({ name }) => name));
    assert.deepEqual(
      Object.keys(SAMPLES).filter((name) => !known.has(name)),
      [],
    );
  });

  for (const procedure of PROCEDURES) {
    const sample = SAMPLES[procedure.name];
    if (!sample) continue;
    it(`${procedure.name} answers another team's id as an absent one`, async () => {
      const used = new Set<keyof Ids>();
      sample(new Proxy(own.ids, { get: (ids, name: keyof Ids) => ids[used.add(name) && name] }));
      assert.ok(used.size > 0, "the sample uses an id");
      for (const name of used) {
        const input = (id: string) => sample({ ...own.ids, [name]: id });
        const theirs = await call(procedure, input(foreign.ids[name]), own.estate.team.id, cookies);
        const absent = await call(procedure, input(ABSENT[name]), own.estate.team.id, cookies);
        const shown = JSON.stringify(theirs).replaceAll(foreign.ids[name], "id");
        assert.deepEqual([theirs.status, theirs.code], [404, "not_found"], `${name}: ${shown}`);
        assert.equal(shown, JSON.stringify(absent).replaceAll(ABSENT[name], "id"));
      }
    });
  }

  it("refuses a VIEWER all that needs another role, which every write does", async () => {
    const { em, team } = own.estate;
    const viewer = await signIn((await makeMember(em, team.id, "VIEWER")).id);
    for (const procedure of PROCEDURES) {
      const { name, isQuery, meta } = procedure;
      assert.ok(meta.role !== undefined && (isQuery || meta.role !== "VIEWER"), name);
      if (meta.role === "VIEWER") continue;
      assert.equal((await call(procedure, {}, team.id, viewer)).code, "role_insufficient", name);
    }
  });

  it("refuses everything without a session, and for a team of others", async () => {
    for (const procedure of PROCEDURES) {
      const { team } = own.estate;
      assert.equal((await call(procedure, {}, team.id, {})).code, "api_key_missing", procedure.name);
      const there = await call(procedure, {}, foreign.estate.team.id, cookies);
      assert.equal(there.code, "api_key_invalid", procedure.name);
    }
  });
});
