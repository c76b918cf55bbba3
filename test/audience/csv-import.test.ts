import assert from "node:assert/strict";
import { Readable } from "node:stream";
import type { Optin } from "../../db/entities/audience.ts";
import { forTenant, kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { createList } from "../../domain/audience/lists.ts";
import { exportPage } from "../../domain/import/export.ts";
import {
  type ImportOptions,
  type ImportReport,
  importContacts,
  importSubscribers,
} from "../../domain/import/import.ts";
import { declareFields } from "../support/contacts.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";
import { snapshotTables } from "../support/tables.ts";

interface Imported extends ImportReport {
  lines: [number, string][];
}

describe("CSV import", () => {
  let team: TestTeam;
  let tenant: Tenant;
  beforeEach(async () => {
    team = await makeTeam();
    tenant = { teamId: team.team.id, environment: "LIVE" };
  });

  async function load(csv: string | Buffer, options: Partial<ImportOptions> = {}): Promise<Imported> {
    const lines: [number, string][] = [];
    const bytes = Buffer.from(csv as string);
    // In small pieces, so that characters and quotes fall on their borders.
    const pieces = Array.from({ length: Math.ceil(bytes.length / 7) }, (_, i) => bytes.subarray(i * 7, i * 7 + 7));
    const report = await importSubscribers(team.em, team.vault, tenant, Readable.from(pieces), {
      onRefused: (line, reason) => void lines.push([line, reason]),
      ...options,
    });
    return { ...report, lines };
  }

  const people = async () =>
    (
      await kysely(team.em)
        .selectFrom("subscribers")
        .select(["email", "first_name", "last_name"])
        .where("team_id", "=", team.team.id)
        .orderBy("email")
        .execute()
    ).map(({ email, first_name, last_name }) => [email, first_name, last_name]);
  const makeList = async (optin: Optin) =>
    transaction(team.em, async (em) => {
      const list = await createList(em, tenant, { name: "List", description: null, optin }, 1_000);
      return list.id;
    });
  const statuses = async (listId: string) =>
    (
      await kysely(team.em)
        .selectFrom("subscriptions")
        .innerJoin("subscribers", "subscribers.id", "subscriptions.subscriber_id")
        .select(["subscribers.email", "subscriptions.status"])
        .where("list_id", "=", listId)
        .orderBy("subscribers.email")
        .execute()
    ).map(({ email, status }) => [email, status]);

  it("reads RFC 4180: quotes, commas, line breaks and doubled quotes in fields, CRLF", async () => {
    const { created, refused } = await load(
      'email,first_name,last_name\r\nA@Example.com,"Änne ""Ann""","O\'Brien, PhD"\r\n"b@example.com",李,\r\n',
    );
    assert.deepEqual([created, refused], [2, 0]);
    assert.deepEqual(await people(), [
      ["a@example.com", 'Änne "Ann"', "O'Brien, PhD"],
      ["b@example.com", "李", null],
    ]);
  });

  const GRID = "Email Address;Vorname;Nachname\nida@example.com;Ida;Müller\nbo@example.com;Bo;Łukasz\n";
  const tabs = GRID.replaceAll(";", "\t");
  for (const [what, csv, lastNames] of [
    ["semicolons", GRID, ["Łukasz", "Müller"]],
    ["semicolons in UTF-8 with its mark", `\uFEFF${GRID}`, ["Łukasz", "Müller"]],
    ["a line that states the separator", `sep=;\r\n${GRID}`, ["Łukasz", "Müller"]],
    ["tabs in UTF-16LE with its mark", Buffer.from(`\uFEFF${tabs}`, "utf16le"), ["Łukasz", "Müller"]],
    ["tabs in UTF-16BE with its mark", Buffer.from(`\uFEFF${tabs}`, "utf16le").swap16(), ["Łukasz", "Müller"]],
    ["tabs in UTF-16LE without a mark", Buffer.from(tabs, "utf16le"), ["Łukasz", "Müller"]],
    ["Windows-1252", Buffer.from(GRID.replace("Łukasz", "\x80uro"), "latin1"), ["€uro", "Müller"]],
  ] as const) {
    it(`takes ${what}`, async () => {
      const { refused, notes } = await load(csv as string);
      assert.deepEqual([refused, notes.windows1252Lines], [0, what === "Windows-1252" ? 2 : 0]);
      assert.deepEqual(await people(), [
        ["bo@example.com", "Bo", lastNames[0]],
        ["ida@example.com", "Ida", lastNames[1]],
      ]);
    });
  }

  for (const eol of ["\n", "\r\n", "\r"]) {
    it(`counts lines as an editor does, also those inside quotes, with ${JSON.stringify(eol)}`, async () => {
      const { lines } = await load(
        ["sep=,", "", "email,notes", 'a@example.com,"one', "", 'three"', "nobody,x"].join(eol),
      );
      assert.deepEqual(lines, [[7, "email is not an email address"]]);
    });
  }

  it("takes the header in any case, spacing and order, and reports the columns that it ignores", async () => {
    const { notes, created } = await load(" Last Name ,shoe size,E-MAIL,First-name\nB,44,a@example.com,A\n");
    assert.deepEqual([notes.ignoredColumns, created], [["shoe size"], 1]);
    assert.deepEqual(await people(), [["a@example.com", "A", "B"]]);
  });

  for (const [what, csv, message] of [
    ["an empty file", "", /empty/],
    ["a file without a header", "a@example.com\nb@example.com\n", /first row names no columns: it holds an address/],
    ["a header without an address", "id;Kunde\n1;A\n", /names no column `email`; it names "id", "Kunde"/],
    ["a column twice", "email,Email\n", /twice/],
    [
      "a file that is no text",
      `\x7FELF${"\x01\x9B,\uFFFD\u202E".repeat(5_000)}\n`,
      /^.{0,100}"\?ELF\??[?,…" ]{0,400}\. Rename/,
    ],
    ["a header with a quote that is not closed", '"email\na@example.com\n', /header row cannot be read/],
  ] as const) {
    it(`refuses ${what} and says why`, () => assert.rejects(load(csv as string), message));
  }

  it("names each refused line with its number and reason, in order, and imports the others", async () => {
    const csv = Buffer.concat([
      Buffer.from(
        [
          "\uFEFFemail,first_name,last_name",
          "ok1@example.com,a,b",
          "nobody,a,b",
          ",a,b",
          "x@example.com,a,b,c",
          'y@example.com,"two\nlines",b',
          'z@example.com,"a"b,c',
          "",
          `long@example.com,${"x".repeat(201)},b`,
          "latin@example.com,",
        ].join("\n"),
      ),
      Buffer.from([0xe9]),
      Buffer.from(",b\nok2@example.com,a,b\n"),
    ]);
    const { lines, created, rows, refused } = await load(csv);
    assert.deepEqual(lines, [
      [3, "email is not an email address"],
      [4, "no email address"],
      [5, "4 fields where the header names 3"],
      [6, "first_name holds a control character"],
      [8, "a quote stands where none may stand"],
      [10, "first_name is longer than 200"],
      [11, "a character that cannot be decoded"],
    ]);
    assert.deepEqual([rows, refused, created], [9, 7, 2]);
  });

  for (const [what, csv, ignored] of [
    ["rows without their last cells", "email,first_name,last_name\na@example.com\nb@example.com,B", []],
    ["rows with a comma at their end", "email,first_name\na@example.com,,\nb@example.com,B, ,\n", []],
    ["last columns without a name and a text", "email,first_name,, \na@example.com,,,\nb@example.com,B\n", []],
    ["an inner column without a name and a text", "email;;first_name\na@example.com\nb@example.com;;B\n", []],
    ["a column without a name that has a text", ",email,first_name\n0,a@example.com\n1,b@example.com,B\n", [""]],
  ] as const) {
    it(`takes ${what}, as spreadsheets write them`, async () => {
      const { lines, notes } = await load(csv);
      assert.deepEqual([lines, notes.ignoredColumns], [[], ignored]);
      assert.deepEqual(await people(), [
        ["a@example.com", null, null],
        ["b@example.com", "B", null],
      ]);
    });
  }

  it("counts no row whose fields are all empty, also before the header, and keeps the numbers of lines", async () => {
    const csv = [";;", "  ", '"";', "email;first_name", "a@example.com;A", ";", ' ;"";', "", "nobody;N", ";;;"];
    const { lines, rows, created } = await load(csv.join("\n"));
    assert.deepEqual([lines, rows, created], [[[9, "email is not an email address"]], 2, 1]);
  });

  it("takes a cell of consent that is missing for an empty one", async () => {
    const { lines, created } = await load("email,unsub_time,status\na@example.com,,subscribed\nb@example.com,\n");
    assert.deepEqual(lines, [[3, '"" in the column "status" is neither a consent nor a refusal']]);
    assert.equal(created, 1);
  });

  it("reports the lines lost to a quote that is never closed", async () => {
    const { lines, created } = await load('email\na@example.com\n"b@example.com\nc@example.com\n');
    assert.equal(created, 1);
    assert.deepEqual(lines, [[3, "a quote is opened and never closed; lines 3 to 4 are lost to it"]]);
  });

  it("refuses a file in which such a quote would read more into memory than the limit", () =>
    assert.rejects(
      load(`email\na@example.com\n"d@example.com\n${"e@example.com\n".repeat(10_000)}`),
      /line 3 begins a record longer than 65536 bytes/,
    ));

  it("counts an address once, in every spelling: its last row decides", async () => {
    const { created, duplicates } = await load(
      "email,first_name\na@münchen.de,First\nb@example.com,B\nA@xn--mnchen-3ya.de,Last\n",
    );
    assert.deepEqual([created, duplicates], [2, 1]);
    assert.deepEqual(await people(), [
      ["a@münchen.de", "Last", null],
      ["b@example.com", "B", null],
    ]);
  });

  it("changes nothing when it is run again, not even updated_at", async () => {
    const list = await makeList("SINGLE");
    const csv = "email,first_name\na@example.com,A\nb@example.com,B\na@example.com,A2\n";
    const first = await load(csv, { listId: list });
    assert.deepEqual(first.list, {
      added: 2,
      asked: 0,
      confirmed: 0,
      alreadySubscribed: 0,
      newlyOptedOut: 0,
      optedOut: 0,
    });
    const before = await snapshotTables(team.em, team.team.id);
    const again = await load(csv, { listId: list });
    assert.deepEqual([again.created, again.updated, again.unchanged], [0, 0, 2]);
    assert.deepEqual(again.list, {
      added: 0,
      asked: 0,
      confirmed: 0,
      alreadySubscribed: 2,
      newlyOptedOut: 0,
      optedOut: 0,
    });
    assert.deepEqual(await snapshotTables(team.em, team.team.id), before);
  });

  it("updates known subscribers; an empty or missing name keeps the known one", async () => {
    await load("email,first_name,last_name\na@example.com,A,Z\nb@example.com,B,Z\n");
    const { created, updated, unchanged } = await load("email,first_name\na@example.com,New\nb@example.com,\n");
    assert.deepEqual([created, updated, unchanged], [0, 1, 1]);
    assert.deepEqual(await people(), [
      ["a@example.com", "New", "Z"],
      ["b@example.com", "B", "Z"],
    ]);
  });

  it("starts DOUBLE subscriptions PENDING unless consent is stated, and confirms them once it is", async () => {
    const list = await makeList("DOUBLE");
    const csv = "email\na@example.com\n";
    await assert.rejects(load(csv, { listId: list }), /^ImportError: 1 person would be asked by email to confirm/);
    assert.deepEqual(await statuses(list), []);
    assert.equal((await load(csv, { listId: list, asks: true })).list?.asked, 1);
    assert.deepEqual(await statuses(list), [["a@example.com", "PENDING"]]);
    const stated = await load(`${csv}b@example.com\n`, { listId: list, confirmed: true });
    assert.deepEqual(stated.list, {
      added: 1,
      asked: 0,
      confirmed: 1,
      alreadySubscribed: 0,
      newlyOptedOut: 0,
      optedOut: 0,
    });
    assert.deepEqual(await statuses(list), [
      ["a@example.com", "CONFIRMED"],
      ["b@example.com", "CONFIRMED"],
    ]);
  });

  const suppressed = async () =>
    (
      await kysely(team.em)
        .selectFrom("suppressions")
        .select(["email", "reason"])
        .where("team_id", "=", team.team.id)
        .orderBy("email")
        .execute()
    ).map(({ email, reason }) => [email, reason]);

  it("opts those out whom a column of consent states so, suppresses bounced ones, and refuses unknown values", async () => {
    const list = await makeList("SINGLE");
    await load("email\nout@example.com\ncleaned@example.com\n", { listId: list });
    await team.em
      .fork()
      .execute(
        "delete from subscriptions where subscriber_id in (select id from subscribers where email like 'cleaned%' and team_id = ?)",
        [team.team.id],
      );
    const { list: counts, ...report } = await load(
      [
        "email,status",
        "in@example.com,Subscribed",
        "out@example.com,unsubscribed",
        "new@example.com,unsubscribed",
        // Its last row says otherwise.
        "new@example.com,subscribed",
        "cleaned@example.com,cleaned",
        "pending@example.com,pending",
        "empty@example.com,",
      ].join("\n"),
      { listId: list, confirmed: true },
    );
    assert.deepEqual(counts, { added: 1, asked: 0, confirmed: 0, alreadySubscribed: 0, newlyOptedOut: 2, optedOut: 0 });
    assert.deepEqual(await statuses(list), [
      ["in@example.com", "CONFIRMED"],
      ["new@example.com", "UNSUBSCRIBED"],
      ["out@example.com", "UNSUBSCRIBED"],
    ]);
    assert.deepEqual([await suppressed(), report.suppressed], [[["cleaned@example.com", "bounce:hard"]], 1]);
    assert.deepEqual(report.lines, [
      [7, '"pending" in the column "status" is neither a consent nor a refusal'],
      [8, '"" in the column "status" is neither a consent nor a refusal'],
    ]);
    assert.deepEqual(report.notes.statusColumns, ["status"]);
  });

  for (const [header, refusal, consent, options] of [
    ["subscribed", "no", "yes", {}],
    ["State", "opted-out", "opt-in", {}],
    ["opt-out", "1", "0", {}],
    ["Email permission status", "Unsubscribed", "Express", {}],
    ["UNSUB_TIME", "2024-01-02 10:00:00", "", {}],
    ["HasOptedOutOfEmail", "true", "false", {}],
    ["Newsletter", "no", "yes", { statusColumns: ["newsletter"] }],
    ["Blocked", "Yes", "No", { statusColumns: ["blocked"] }],
    ["Consent withdrawn", "Yes", "No", { statusColumns: ["consent withdrawn"] }],
    ["Kein Newsletter", "ja", "nein", { statusColumns: ["kein newsletter"] }],
    ["Abgemeldet am", "2024-01-02", "", { statusColumns: ["abgemeldet am"] }],
  ] as const) {
    it(`reads consent from a column ${header}, and suppresses without a list`, async () => {
      const { refused } = await load(
        `email,${header}\nin@example.com,${consent}\nout@example.com,${refusal}\n`,
        options,
      );
      assert.deepEqual([refused, await suppressed()], [0, [["out@example.com", "UNSUBSCRIBED"]]]);
    });
  }

  it("refuses a file with a column that may state consent, before it writes anything", async () => {
    const [names, values] = [
      "Abonniert?;Désabonné;Newsletter;Marketing Permission;gdpr;Global Status;Blocked;List 1: Status;Bounced hard;" +
        "Opted out of email: Newsletter;Email hard bounce reason;Email Suppressions;no_email;DNC;blacklist;Hard Bounce;Spam;" +
        "Deleted;GDPR Consent;Klaviyo Consent;newsletter_subscribed;permission;Emails opt out;List Unsubscribed;" +
        "Unsubscribed from all;Status (Newsletter);Abgemeldet am;Einwilligung;Baja;Estado;Statut",
      "Unsubscribed;hard bounce;[spam];désinscrit",
    ].map((texts) => texts.split(";"));
    const cases = [
      ...(names ?? []).map((name) => [name, "x", "x"]),
      ...(values ?? []).map((value) => ["Segment", "Gold", value]),
    ];
    for (const [name = "", first, second] of cases) {
      const csv = `email,"${name}"\na@example.com,${first}\nb@example.com,${second}\n`;
      await assert.rejects(load(csv), ({ message }: Error) =>
        [`"${name}"`, "--ignore-column NAME", "--status-column NAME"].every((part) => message.includes(part)),
      );
      assert.deepEqual([name, (await load(csv, { ignoreColumns: [name] })).refused], [name, 0]);
      await team.em.fork().execute("delete from subscribers where team_id = ?", [team.team.id]);
    }
    await assert.rejects(load("email,Blocked,blocked?,DNC\n"), /in "Blocked", "blocked\?", "DNC"\./);
    const { created } = await load("email,Spam,spam?,OPTIN_TIME,Subscriber ID\na@example.com,1,1,,7\n", {
      ignoreColumns: ["spam"],
    });
    assert.equal(created, 1);
  });

  it("takes a date for a yes where a column states a subscription, and nowhere else", async () => {
    const csv = "email,COLUMN\na@example.com,2024-01-02 10:00:00\nb@example.com,0000-00-00\n";
    assert.deepEqual(
      (await load(csv.replace("COLUMN", "Subscribed"))).lines.map(([line]) => line),
      [3],
    );
    assert.equal((await load(csv.replace("COLUMN", "Status"))).refused, 2);
  });

  it("suppresses for the gravest of several reasons", async () => {
    await load(
      [
        "email,status,unsub_time,clean",
        "spam@example.com,cleaned,,yes",
        "spam@example.com,marked as spam,,",
        "spam@example.com,unsubscribed,,",
        "both@example.com,cleaned,2024-01-02,",
        "in@example.com,subscribed,,yes",
      ].join("\n"),
      { ignoreColumns: ["clean"] },
    );
    assert.deepEqual(await suppressed(), [
      ["both@example.com", "bounce:hard"],
      ["spam@example.com", "bounce:complaint"],
    ]);
  });

  it("asks once about a column that may be the state of an address", async () => {
    const csv = "email,Contact State\na@example.com,CA\n";
    await assert.rejects(load(csv), /Line 2: "CA" in the column "Contact State" .* --ignore-column .* --status-column/);
    const { created, notes } = await load(csv, { ignoreColumns: ["contact state"] });
    assert.deepEqual([created, notes.ignoredColumns], [1, ["Contact State"]]);
    assert.equal((await load(csv, { statusColumns: ["contact state"] })).refused, 1);
    await assert.rejects(load(csv, { statusColumns: ["zip"] }), /no column "zip"; it names "email", "Contact State"/);
  });

  it("never lifts an opt-out, not even where consent is stated", async () => {
    const list = await makeList("SINGLE");
    await load("email\na@example.com\n", { listId: list });
    await team.em.fork().execute("update subscriptions set status = 'UNSUBSCRIBED' where list_id = ?", [list]);
    const { list: counts } = await load("email\na@example.com\n", { listId: list, confirmed: true });
    assert.deepEqual(counts, { added: 0, asked: 0, confirmed: 0, alreadySubscribed: 0, newlyOptedOut: 0, optedOut: 1 });
    assert.deepEqual(await statuses(list), [["a@example.com", "UNSUBSCRIBED"]]);
  });

  it("imports all or nothing, and never onto another team's list", async () => {
    const otherTeam = await makeTeam();
    const owner = { teamId: otherTeam.team.id, environment: "LIVE" } as const;
    const theirs = await transaction(otherTeam.em, (em) =>
      createList(em, owner, { name: "x", description: null, optin: "SINGLE" }, 1_000),
    );
    await assert.rejects(load("email\na@example.com\n", { listId: theirs.id }), { code: "not_found" });
    await assert.rejects(
      load("email\na@example.com\nb\n", {
        onRefused: () => {
          throw new Error("the disk is full");
        },
      }),
      /disk/,
    );
    assert.deepEqual(await people(), []);
  });

  it("writes more people than go in one statement", async () => {
    const count = 12_345;
    const list = await makeList("SINGLE");
    const rows = Array.from({ length: count }, (_, i) => `p${i}@example.com,${i % 2 ? "cleaned" : "active"}`);
    const csv = `email,status\n${rows.join("\n")}\n`;
    const seen: string[] = [];
    const report = await load(csv, { listId: list, onProgress: ({ phase }) => seen.push(phase) });
    assert.deepEqual([report.created, report.list?.added, report.suppressed], [count, 6_173, 6_172]);
    assert.ok(seen.includes("reading") && seen.includes("writing"));
  });

  describe("a column of a custom field", () => {
    const contacts = async () =>
      (
        await kysely(team.em)
          .selectFrom("contacts")
          .select(["email", "first_name", "fields"])
          .where("team_id", "=", team.team.id)
          .orderBy("email")
          .execute()
      ).map(({ email, ...of }) => [email.split("@")[0], ...Object.values(of)]);
    beforeEach(() => declareFields(team, { city: "text", joined: "date" }));

    it("makes or fills the contact of the address, within the plan's slots, and refuses a value of another type", async () => {
      await importContacts(
        team.em,
        team.vault,
        tenant,
        Readable.from(["email,city,joined\nb@x.example,Rome,2026-01-31\n"]),
        {
          onRefused: () => {},
        },
      );
      const rows = ["a@x.example,Ada,Bonn,", "b@x.example,,Kiel,", "c@x.example,C,,", "d@x.example,D,Ulm,soon"];
      const csv = `email,first_name,City,JOINED\n${rows.join("\n")}`;
      await team.em.execute("update teams set contact_slots = 3 where id = ?", [team.team.id]);
      const listId = await makeList("SINGLE");
      const { lines, fields, created } = await load(csv, { listId });
      assert.deepEqual(lines, [[5, "joined must be a date, such as 2026-01-31"]]);
      assert.deepEqual([created, fields], [3, { contactsCreated: 1, contactsUpdated: 1, fieldsNotStored: 0 }]);
      assert.deepEqual(await contacts(), [
        ["a", "Ada", { city: "Bonn" }],
        ["b", null, { city: "Kiel", joined: "2026-01-31" }],
      ]);
      const { csv: exported } = await exportPage(forTenant(team.em, tenant), tenant, { listId }, "");
      assert.match(exported, /^email,first_name,last_name,city,joined,/);
      assert.match(exported, /\r\na@x\.example,Ada,,Bonn,,/);
      assert.match(exported, /\r\nb@x\.example,,,Kiel,2026-01-31,/);
      assert.equal((await load(csv, { listId })).fields, undefined, "all is stored");
      assert.equal((await load(csv.replace("City", "Town"), { listId })).unchanged, 3);
    });

    it("reads consent, and leaves out what is not imported, also where a field has the name of a use", async () => {
      // Of a release that reserved none of these names.
      const old = ["consent", "none", "ignored", "tracking_consent"].map((name) => ({ name, type: "text" as const }));
      const rows = old.map((field) => ({ ...field, team_id: team.team.id, environment: "LIVE" as const }));
      await kysely(team.em).insertInto("contact_fields").values(rows).execute();
      const csv = "email,Consent,None,City,tracking_consent\nin@x.example,yes,x,Bonn,no\nout@x.example,no,x,Rom,no\n";
      for (const uses of [undefined, ["email", "consent", "none", "city", "tracking_consent"]]) {
        const listId = await makeList("SINGLE");
        const { notes } = await load(csv, { listId, uses });
        assert.deepEqual([notes.statusColumns, notes.ignoredColumns], [["Consent"], ["None"]]);
        assert.deepEqual(await statuses(listId), [
          ["in@x.example", "CONFIRMED"],
          ["out@x.example", "UNSUBSCRIBED"],
        ]);
        assert.deepEqual(await contacts(), [["in", null, { city: "Bonn" }]]);
        const denied = await kysely(team.em)
          .deleteFrom("tracking_consents")
          .where("team_id", "=", team.team.id)
          .execute();
        assert.equal(denied[0]?.numDeletedRows, 2n);
      }
    });

    it("makes no contact, whom campaigns would mail, of a person who opted out, has not confirmed yet, or comes onto no list", async () => {
      const listId = await makeList("DOUBLE");
      await load("email,status\nout@x.example,unsubscribed\nin@x.example,subscribed\n", { listId, confirmed: true });
      const names = ["in", "out", "asked", "leaves", "spam"];
      const statusOf = (name: string) => ({ leaves: "unsubscribed", spam: "spam" })[name] ?? "subscribed";
      const csv = `email,status,city\n${names.map((name) => `${name}@x.example,${statusOf(name)},Bonn\n`).join("")}`;
      const { fields } = await load(csv, { listId, asks: true });
      assert.deepEqual(fields, { contactsCreated: 1, contactsUpdated: 0, fieldsNotStored: 2 });
      assert.deepEqual(await contacts(), [["in", null, { city: "Bonn" }]]);
      const listless = await load(csv);
      assert.deepEqual(listless.fields, { contactsCreated: 0, contactsUpdated: 0, fieldsNotStored: 3 });
      const again = await load(csv, { listId, confirmed: true });
      assert.deepEqual(again.fields, { contactsCreated: 1, contactsUpdated: 0, fieldsNotStored: 1 });
      assert.deepEqual(
        (await contacts()).map(([name]) => name),
        ["asked", "in"],
      );
    });
  });

  describe("a column of consent to be tracked", () => {
    const consents = async () =>
      (
        await kysely(team.em)
          .selectFrom("tracking_consents")
          .select(["email", "status", "way", "words"])
          .where("team_id", "=", team.team.id)
          .orderBy("email")
          .execute()
      ).map(({ email, ...answer }) => [email.split("@")[0], ...Object.values(answer)]);

    for (const header of ["tracking_consent", "Tracking Opt-In", "consent to track", "emailTrackingAllowed"]) {
      it(`is read under ${header}, and says nothing about mail`, async () => {
        const rows = ["a@x.example,yes", "b@x.example,DENIED", "c@x.example,", "d@x.example,perhaps", "e@x.example,1"];
        const { lines, suppressed } = await load(`email,${header}\n${rows.join("\n")}`, { trackingWords: "May we?" });
        assert.deepEqual(lines, [[5, "tracking_consent says neither yes nor no"]]);
        assert.equal(suppressed, 0);
        assert.deepEqual(await consents(), [
          ["a", "GRANTED", "IMPORT", "May we?"],
          ["b", "DENIED", "IMPORT", "May we?"],
          ["e", "GRANTED", "IMPORT", "May we?"],
        ]);
      });
    }

    it("denies where one row of the person does, keeps a grant before an empty cell, changes nothing in a dry run, and comes back from an export", async () => {
      const csv = "email,tracking_consent\na@x.example,no\nA@x.example,yes\nb@x.example,granted\nb@x.example,";
      await load(csv, { isDryRun: true });
      assert.deepEqual(await consents(), []);
      const listId = await makeList("SINGLE");
      await load(csv, { listId, trackingWords: "=May we?" });
      assert.deepEqual(
        (await consents()).map(([name, status]) => [name, status]),
        [
          ["a", "DENIED"],
          ["b", "GRANTED"],
        ],
      );
      for (const exported of [{ listId }, "contacts"] as const) {
        await importContacts(team.em, team.vault, tenant, Readable.from([csv]), { onRefused: () => {} });
        const { csv: out } = await exportPage(forTenant(team.em, tenant), tenant, exported, "");
        const [header = "", ...rows] = out
          .trim()
          .split(/\r?\n/)
          .map((line) => line.split(","));
        const at = header.indexOf("tracking_consent");
        assert.deepEqual(rows.map((cells) => cells[at]).sort(), ["denied", "granted"]);
        const proofs = rows.map((cells) => [
          Date.parse(cells[at + 1] ?? "") > Date.now() - 60_000,
          ...cells.slice(at + 2, at + 4),
        ]);
        assert.deepEqual(proofs, [
          [true, "import", "'=May we?"],
          [true, "import", "'=May we?"],
        ]);
      }
    });
  });
});
