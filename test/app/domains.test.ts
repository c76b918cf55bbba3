import assert from "node:assert/strict";
import { domainToUnicode } from "node:url";
import { forTenant } from "../../db/orm.ts";
import { checkRecords, type RecordCheck } from "../../domain/sending-domains/check.ts";
import { listKeys } from "../../domain/sending-domains/keys.ts";
import { type DnsRecord, recordsOf } from "../../domain/sending-domains/records.ts";
import { openLookup } from "../../lib/dns.ts";
import type { Json } from "../support/api.ts";
import { app, refused, run } from "../support/command.ts";
import { type DnsRecords, type DnsServer, startDnsServer } from "../support/dns-server.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";
import { addAccount } from "../support/sending.ts";

describe("Sending domains", () => {
  let dns: DnsServer;
  before(async () => {
    dns = await startDnsServer();
  });
  after(() => dns.close());

  const publish = (records: DnsRecord[]) => {
    for (const { name, type, value } of records) {
      const there = dns.names.get(name) ?? {};
      if (type === "TXT") dns.names.set(name, { ...there, txt: [value] });
      else dns.names.set(name, { ...there, mx: ["mx.example.net"] });
    }
  };

  it("get a key, its records, a look-up of each, and the next key, by the command line", async () => {
    const { team, em } = await makeTeam();
    const domain = `${unique("büro")}.example`;
    const ascii = new URL(`http://${domain}`).hostname;
    await addAccount({ em, team }, { email: `news@${domainToUnicode(ascii)}`, host: "smtp.example.net" });
    const of = ["--team", team.id, "--domain", domain];
    const asked = ["--dns-server", dns.address];

    const added = await run("domain:add", ...of);
    assert.deepEqual(
      added.records.map(({ purpose, name, type, value }: Json) => [purpose, name, type, value.slice(0, 30)]),
      [
        ["DKIM", `${added.key.selector}._domainkey.${ascii}`, "TXT", "v=DKIM1; k=rsa; p=MIIBIjANBgkq"],
        ["SPF", ascii, "TXT", "v=spf1 a:smtp.example.net ~all"],
        ["DMARC", `_dmarc.${ascii}`, "TXT", "v=DMARC1; p=none"],
      ],
    );
    assert.match(added.key.selector, /^mk20\d{6}-[0-9a-z]{6}$/);
    assert.equal(added.key.use, "waiting");
    const activate = ["domain:activate", "--key", added.key.id, ...asked];
    await refused(/Its record is missing: publish the TXT record of mk/, ...activate);

    publish(added.records.slice(0, 2));
    const { stdout: report } = await app("domain:check", ...of, ...asked);
    const [dkim, spf, dmarc] = added.records;
    assert.equal(
      report,
      `DKIM ${dkim.name}: ok
  found     ${dkim.value}
  to do     domain:activate --key ${added.key.id}
SPF ${ascii}: ok
  found     ${spf.value}
DMARC ${dmarc.name}: missing
  found     nothing
  expected  ${dmarc.value}
  to do     publish the TXT record of ${dmarc.name}
No key signs the mails of ${ascii}
`,
    );
    const [active] = (await run(...activate)).keys;
    assert.equal(active.use, "signing");

    const next = await run("domain:rotate", ...of);
    assert.notEqual(next.key.selector, added.key.selector);
    await run("domain:activate", "--key", next.key.id, "--unchecked");
    const { keys } = await run("domain:list", "--team", team.id);
    const uses = keys.map(({ id, use }: Json) => `${id} ${use}`);
    assert.deepEqual(uses, [`${next.key.id} signing`, `${added.key.id} replaced`]);
    const weekAhead = Date.parse(keys[1].keep_record_until) - Date.now();
    assert.ok(weekAhead > 6 * 86_400_000 && weekAhead <= 7 * 86_400_000);
    const { stdout } = await app("domain:remove", "--key", added.key.id);
    assert.match(stdout, /is removed\. Keep its record until 20.*: mk20.*_domainkey/);
    assert.ok(![added, active, keys, stdout].some((shown) => JSON.stringify(shown).includes("PRIVATE")));
  });

  describe("are looked up record by record:", () => {
    const domain = `${unique("from")}.example`;
    const returnPath = `bounces.${unique("path")}.example`;
    let team: TestTeam;
    before(async () => {
      team = await makeTeam();
      const accounts = [
        { email: `news@${domain}`, host: "smtp.example.net" },
        { email: `ses@${domain}`, provider: "SMTP_AMAZON_SES" as const },
        { email: "other@elsewhere.example", allowedDomains: [domain], host: "192.0.2.9" },
        { email: "apart@elsewhere.example", provider: "SMTP_SENDGRID" as const },
      ];
      for (const account of accounts) await addAccount(team, account);
    });

    const check = async (names: Record<string, DnsRecords>): Promise<Record<string, RecordCheck>> => {
      dns.names.clear();
      for (const [name, records] of Object.entries(names)) dns.names.set(name, records);
      const tenant = { teamId: team.team.id, environment: "LIVE" as const };
      const em = forTenant(team.em, tenant);
      const records = await recordsOf(em, tenant, domain, await listKeys(em, tenant, domain), returnPath);
      const checks = await checkRecords(openLookup([dns.address]), records);
      return Object.fromEntries(checks.map((each) => [each.record.purpose, each]));
    };
    const spf = async (record: string | string[], more: Record<string, DnsRecords> = {}) =>
      (await check({ [domain]: { txt: [record].flat() }, ...more }))["SPF"];
    const dmarc = async (names: Record<string, DnsRecords>) => (await check(names))["DMARC"];

    it("an SPF record names the servers of all accounts of the domain", async () => {
      const needed = "a:smtp.example.net include:amazonses.com ip4:192.0.2.9";
      const ses = { "amazonses.com": { txt: ["v=spf1 ip4:198.51.100.0/24 -all"] } };
      assert.equal((await spf(`v=spf1 ${needed} ~all`, ses))?.state, "ok");
      assert.deepEqual((await spf("v=spf1 -all"))?.todo?.split(" to the record")[0], `add ${needed}`);
      assert.equal((await spf("v=spf1 ip4:192.0.2.0/24 include:amazonses.com a:smtp.example.net", ses))?.state, "ok");
      // Named by an included record, and by addresses instead of a host.
      const through = {
        ...ses,
        "spf.example.net": { txt: ["text", "v=spf1 ip4:192.0.2.0/24 ip6:2001:db8::/32 include:amazonses.com ~all"] },
        "smtp.example.net": { a: ["192.0.2.77"], aaaa: ["2001:db8::1"] },
      };
      assert.equal((await spf("v=spf1 include:spf.example.net -all", through))?.state, "ok");
      assert.equal((await spf("v=spf1 redirect=spf.example.net", through))?.state, "ok");
      assert.match((await spf("v=spf1 -include:spf.example.net", through))?.todo ?? "", /^add a:smtp/);
    });

    it("an SPF record is the only one of its name, and usable", async () => {
      assert.match((await spf(["v=spf1 -all", "v=spf1 ~all"]))?.todo ?? "", /^join the SPF records/);
      const none = await spf("v=spf1 include:none.example -all");
      assert.match(none?.todo ?? "", /names none\.example, which has no SPF/);
      const loop = { [domain]: { txt: [`v=spf1 include:${domain}`] } };
      assert.match((await check(loop))["SPF"]?.todo ?? "", /more than 10 look-ups/);
      assert.equal((await spf("v=spf10 -all"))?.state, "missing");
    });

    it("there is no SPF record for a domain that no account sends from", async () => {
      const tenant = { teamId: team.team.id, environment: "TEST" as const };
      const { records, spfTerms } = await recordsOf(forTenant(team.em, tenant), tenant, domain, [], returnPath);
      assert.deepEqual(spfTerms, []);
      assert.equal(records.map(({ purpose }) => purpose).join(), "DMARC,return path");
    });

    it("a DMARC record has a policy, and may stand at the domain above", async () => {
      assert.equal((await dmarc({ [`_dmarc.${domain}`]: { txt: ["v=DMARC1; p=quarantine"] } }))?.state, "ok");
      assert.match((await dmarc({ [`_dmarc.${domain}`]: { txt: ["v=DMARC1;"] } }))?.todo ?? "", /a policy: p=none/);
      const two = await dmarc({ [`_dmarc.${domain}`]: { txt: ["v=DMARC1; p=none", "v=DMARC1; p=reject"] } });
      assert.match(two?.todo ?? "", /keep one/);
      assert.equal((await dmarc({ [`_dmarc.${domain}`]: { txt: ["other"] } }))?.state, "missing");
    });

    it("a record is shown without the control characters that its owner may have put in", async () => {
      const clearScreen = "\u001b[2J\u009b2J\r";
      const { SPF: spf, DMARC: dmarc } = await check({
        [domain]: { txt: [`v=spf1 include:${clearScreen}.example -all`] },
        [`_dmarc.${domain}`]: { txt: [`v=DMARC1; p=none; ${clearScreen}`] },
      });
      assert.match(spf?.todo ?? "", /which has no SPF record/);
      assert.equal(dmarc?.found.length, 1);
      for (const text of [spf, dmarc].flatMap((each) => [each?.todo ?? "", ...(each?.found ?? [])])) {
        assert.doesNotMatch(text, /\p{Cc}/u);
      }
    });

    it("a return path has a mail server and an SPF record of its own", async () => {
      const checks = await check({ [returnPath]: { mx: ["mx.example.net"] } });
      assert.equal(checks["return path"]?.state, "ok");
      assert.equal(checks["return path SPF"]?.state, "missing");
      assert.equal((await check({}))["return path"]?.state, "missing");
    });

    it("a DNS server that does not answer makes a record unknown, not missing", async () => {
      dns.names.clear();
      dns.close();
      const records = { records: [{ purpose: "DMARC", name: "_dmarc.example.org", type: "TXT", value: "" }] as const };
      const lookup = openLookup([dns.address]);
      const [found] = await checkRecords(lookup, { ...records, records: [...records.records], keys: [], spfTerms: [] });
      assert.equal(found?.state, "unknown");
      assert.match(found?.todo ?? "", /DNS did not answer/);
      dns = await startDnsServer();
    });

    it("a key's record holds that key, and is one alone", async () => {
      const key = await run("domain:add", "--team", team.team.id, "--domain", domain, "--algorithm", "ed25519");
      const { name, value } = key.records[0];
      const stateOf = async (...txt: string[]) => {
        const { DKIM } = await check({ [name]: { txt } });
        return [DKIM?.state, DKIM?.todo?.split(" ")[0]];
      };
      assert.deepEqual(await stateOf(value), ["ok", "domain:activate"]);
      const alike = value.replace(/p=/, "t=s; p=").replace("v=DKIM1; ", "");
      assert.deepEqual(await stateOf(alike), ["ok", "domain:activate"]);
      assert.deepEqual(await stateOf(value.replace(/p=.*/, "p=")), ["wrong", "replace"]);
      assert.deepEqual(await stateOf(value.replace("k=ed25519; ", "")), ["wrong", "replace"]);
      assert.deepEqual(await stateOf(value, value), ["wrong", "remove"]);
      assert.deepEqual(await stateOf(), ["missing", "publish"]);
    });
  });
});
