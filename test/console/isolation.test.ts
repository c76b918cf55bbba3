import assert from "node:assert/strict";
import { signIn } from "../support/console.ts";
import { makeMember } from "../support/factories.ts";
import { ABSENT, call, HARMLESS, type Ids, idsIn, LISTS, makeIds, PROCEDURES, SAMPLES } from "./procedures.ts";

describe("Isolation of the console's procedures", () => {
  let own: Awaited<ReturnType<typeof makeIds>>;
  let foreign: Awaited<ReturnType<typeof makeIds>>;
  before(async () => {
    own = await makeIds();
    foreign = await makeIds();
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
        const theirs = await call(procedure, input(foreign.ids[name]), own.team.id, own.cookies);
        const absent = await call(procedure, input(ABSENT[name]), own.team.id, own.cookies);
        const shown = JSON.stringify(theirs).replaceAll(foreign.ids[name], "id");
        // A read of sends under way finds none.
        assert.ok(
          theirs.code === "not_found" || (theirs.code === "answered" && procedure.isQuery),
          `${name}: ${shown}`,
        );
        assert.equal(shown, JSON.stringify(absent).replaceAll(ABSENT[name], "id"));
      }
    });
  }

  it("shows nothing of another team in a list", async () => {
    for (const procedure of PROCEDURES.filter(({ name, isQuery }) => isQuery && !SAMPLES[name])) {
      const { code, data } = await call(procedure, LISTS[procedure.name] ?? {}, own.team.id, own.cookies);
      const shown = `${procedure.name}: ${code} ${JSON.stringify(data)}`;
      assert.equal(code, "answered", shown);
      for (const id of Object.values(foreign.ids)) assert.ok(!shown.includes(id), shown);
    }
  });

  it("refuses a VIEWER all that needs another role, which every write does", async () => {
    const { em, team } = own;
    const viewer = await signIn((await makeMember(em, team.id, "VIEWER")).id);
    for (const procedure of PROCEDURES) {
      const { name, isQuery, meta } = procedure;
      assert.ok(meta.role !== undefined && (isQuery || meta.role !== "VIEWER" || HARMLESS.includes(name)), name);
      // The check of an import names people.
      if (name.startsWith("imports.") && name !== "imports.list") assert.equal(meta.role, "EDITOR", name);
      if (meta.role === "VIEWER") continue;
      assert.equal((await call(procedure, {}, team.id, viewer)).code, "role_insufficient", name);
    }
  });

  it("refuses everything without a session, and for a team of others", async () => {
    for (const procedure of PROCEDURES) {
      assert.equal((await call(procedure, {}, own.team.id, {})).code, "api_key_missing", procedure.name);
      const there = await call(procedure, {}, foreign.team.id, own.cookies);
      assert.equal(there.code, "api_key_invalid", procedure.name);
    }
  });
});
