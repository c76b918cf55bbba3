import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { importJWK, type JWTPayload, SignJWT, UnsecuredJWT } from "jose";
import { appRouter } from "../../api/router.ts";
import type { Env } from "../../config/env.ts";
import { openLog } from "../../config/log.ts";
import { Member } from "../../db/entities/team.ts";
import { transaction } from "../../db/transaction.ts";
import { openProvider } from "../../domain/access/oidc.ts";
import { addMember, changeMember } from "../../domain/teams/teams.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { app as command } from "../support/command.ts";
import { type Cookies, consoleFetch, linkFor, signIn } from "../support/console.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, execute, makeMember, makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import {
  askProvider,
  makeSigningKey,
  type OidcIssuer,
  openOidcIssuer,
  type SigningKey,
} from "../support/oidc-issuer.ts";
import { windowWithRoom } from "../support/request-window.ts";
import { stack } from "../support/stack.ts";

const SIGN_IN = "/sign-in/oidc";

/** A network of its own, whose requests no other one counts. */
const newNetwork = (): string => `10.${[0, 0, 0].map(() => Math.floor(Math.random() * 256)).join(".")}`;

describe("Signing in to the console by OpenID Connect", () => {
  let issuer: OidcIssuer;
  let at: string;
  let own: TestTeam;
  const apps: TestApp[] = [];
  let log = "";
  /** An API whose members sign in at the provider. */
  const serve = async (changes: Partial<Env> = {}, timeoutMs?: number) => {
    const { env } = await stack();
    const settings = { ...issuer.settings, PROXY_ADDRESSES: ["127.0.0.1"], PROXY_HOPS: 1, ...changes };
    const provider = openProvider({ ...env, ...settings }, timeoutMs);
    const to = new Writable({
      write(chunk, _encoding, done) {
        log += String(chunk);
        done();
      },
    });
    const logger = openLog({ ...env, LOG_LEVEL: "trace" }, "api", to);
    const app = await serveRoutes(appRouter, { changes: settings, with: { provider, log: logger } });
    apps.push(app);
    return app.origin;
  };
  before(async () => {
    issuer = await openOidcIssuer((await stack()).origin);
    own = await makeTeam();
    at = await serve();
  });
  after(async () => {
    for (const app of apps) await app.close();
    await issuer.close();
  });
  afterEach(() => issuer.answers.clear());

  const get = (cookies: Cookies, path: string, server = at, network = newNetwork()) =>
    consoleFetch(cookies, "GET", path, undefined, { "x-forwarded-for": network }, server);
  /** @returns where the browser is sent to */
  const begin = async (cookies: Cookies, { page = "", server = at } = {}) =>
    String((await get(cookies, `${SIGN_IN}?${new URLSearchParams({ page })}`, server)).headers.get("location"));
  /** Brings an answer back. @returns the page that follows, or the problem that it shows */
  const finish = async (cookies: Cookies, { search }: { search: string }, server = at): Promise<string> => {
    const answer = await get(cookies, `${SIGN_IN}/callback${search}`, server);
    const next = answer.headers.get("location") ?? String(answer.status);
    return next.replace("/console/sign-in?problem=", "");
  };
  /** Signs a person in by a whole walk. @returns the page that follows, or a problem, and the cookies */
  const walk = async (subject: string, { page = "", server = at } = {}) => {
    const cookies: Cookies = {};
    issuer.present = subject;
    const next = await finish(cookies, await askProvider(issuer, await begin(cookies, { page, server })), server);
    return { next, cookies };
  };
  /** Makes a person of the provider. @param email verified, unless the claims say otherwise */
  const person = (email: string, claims: Record<string, unknown> = {}): string => {
    const subject = unique("subject");
    issuer.people.set(subject, { email, email_verified: true, name: "Ada", ...claims });
    return subject;
  };
  const addressOf = async (cookies: Cookies) => {
    const answer = await get({ ...cookies }, "/session");
    return answer.ok ? ((await answer.json()) as { email: string }).email : answer.status;
  };
  const sessionsOf = async (email: string) =>
    (await execute("select from console_sessions where email = ?", email)).length;
  const problemOf = async (subject: string, server = at) => {
    const { next, cookies } = await walk(subject, { server });
    assert.equal(cookies["mailkeel_session"], undefined);
    return next;
  };

  it("opens a session of the member with the verified address, at the page that was asked for", async () => {
    const member = await makeMember(own.em, own.team.id, "EDITOR");
    const subject = person(member.email.toUpperCase(), { roles: ["ADMIN"] });
    const page = `/console/${own.team.id}/live/lists?q=a`;
    const first = await walk(subject, { page });
    assert.deepEqual([first.next, await addressOf(first.cookies)], [page, member.email]);
    assert.deepEqual(Object.keys(first.cookies), ["mailkeel_session"]);
    const server = await serve({ OIDC_TEAM_ID: own.team.id, OIDC_ROLE_CLAIM: "roles" });
    for (const elsewhere of ["https://evil.example/console/", "//evil.example/console/", "/console/../api", "\\\\evil"])
      assert.equal((await walk(subject, { page: elsewhere, server })).next, "/console/");
    const { role } = await own.em.fork().findOneOrFail(Member, { id: member.id });
    assert.equal(role, "EDITOR", "the claim changes no role");
    assert.equal((await execute("select from console_identities where email = ?", member.email)).length, 1);
    await consoleFetch(first.cookies, "DELETE", "/session");
    assert.equal(first.cookies["mailkeel_session"], undefined);
  });

  it("refuses an address that is not verified, or that no member has", async () => {
    const member = await makeMember(own.em, own.team.id, "EDITOR");
    for (const claims of [{ email_verified: false }, { email_verified: "true" }, { email_verified: undefined }])
      assert.equal(await problemOf(person(member.email, claims)), "unverified", JSON.stringify(claims));
    assert.equal(await problemOf(person("", { email: undefined })), "unverified");
    assert.equal(await problemOf(person("no address")), "unverified");
    assert.equal(await problemOf(person(uniqueEmail())), "unknown");
    await transaction(own.em.fork(), (em) => changeMember(em, member.id, { removedAt: new Date() }));
    assert.equal(await problemOf(person(member.email)), "unknown");
    assert.equal(await sessionsOf(member.email), 0);
    assert.deepEqual(await execute("select from console_identities where email = ?", member.email), []);
  });

  it("makes a new person a member of one team, with the highest role that a claim names", async () => {
    const other = await makeTeam();
    const server = await serve({ OIDC_TEAM_ID: own.team.id, OIDC_ROLE_CLAIM: "roles" });
    const roles = (email: string) =>
      execute("select team_id, role, name from members where email = ? and removed_at is null order by team_id", email);
    const email = uniqueEmail();
    const { cookies } = await walk(person(email, { roles: ["staff", "VIEWER", "EDITOR"] }), { server });
    assert.equal(await addressOf(cookies), email);
    assert.deepEqual(await roles(email), [{ team_id: own.team.id, role: "EDITOR", name: "Ada" }]);
    for (const claim of ["OWNER", "editor", ["staff"], { EDITOR: true }, undefined])
      assert.equal(await problemOf(person(uniqueEmail(), { roles: claim }), server), "unknown", JSON.stringify(claim));
    assert.equal(
      await problemOf(person(uniqueEmail(), { roles: "EDITOR", email_verified: false }), server),
      "unverified",
    );
    await execute("update members set removed_at = now() where email = ?", email);
    assert.equal(await addressOf(cookies), 401, "the session ends with its member");
    const removed = person(email, { roles: "ADMIN" });
    assert.equal(await problemOf(removed, server), "unknown", "one who was removed is not new");
    const { email: theirs } = await makeMember(other.em, other.team.id, "VIEWER");
    assert.equal((await walk(person(theirs, { roles: "ADMIN", name: " \n" }), { server })).next, "/console/");
    assert.deepEqual(
      new Map((await roles(theirs)).map(({ team_id, role }) => [team_id, role])),
      new Map([
        [other.team.id, "VIEWER"],
        [own.team.id, "ADMIN"],
      ]),
    );
  });

  it("binds an account and an address to each other, until an operator unbinds them", async () => {
    const ada = await makeMember(own.em, own.team.id, "EDITOR");
    const bob = await makeMember(own.em, own.team.id, "ADMIN");
    const subject = person(ada.email);
    assert.equal((await walk(subject)).next, "/console/");
    assert.equal(await problemOf(person(ada.email)), "bound", "another account with the address");
    issuer.people.set(subject, { email: bob.email, email_verified: true });
    assert.equal(await problemOf(subject), "bound", "the account with another address");
    assert.equal(await sessionsOf(bob.email), 0);
    assert.equal((await command("member:unbind", "--email", ada.email)).code, 0);
    const ofTeam = "select object_id from audit_entries where team_id = ? and act = 'member:unbind'";
    assert.deepEqual(await execute(ofTeam, own.team.id), [{ object_id: ada.id }]);
    const { cookies } = await walk(subject);
    assert.equal(await addressOf(cookies), bob.email);
    assert.equal((await command("member:unbind", "--email", ada.email)).code, 1);
  });

  it("gives two sign-ins of one new person at once one member", async () => {
    const server = await serve({ OIDC_TEAM_ID: own.team.id, OIDC_ROLE_CLAIM: "roles" });
    const email = uniqueEmail();
    issuer.present = person(email, { roles: "VIEWER" });
    const answers: [Cookies, URL][] = [];
    for (let n = 0; n < 3; n++) {
      const cookies: Cookies = {};
      answers.push([cookies, await askProvider(issuer, await begin(cookies, { server }))]);
    }
    const next = await Promise.all(answers.map(([cookies, url]) => finish(cookies, url, server)));
    assert.deepEqual(next, ["/console/", "/console/", "/console/"]);
    assert.equal((await execute("select from members where email = ?", email)).length, 1);
  });

  describe("refuses an answer", () => {
    let email: string;
    let subject: string;
    before(async () => {
      ({ email } = await makeMember(own.em, own.team.id, "ADMIN"));
      subject = person(email);
      const { cookies } = await walk(subject);
      await consoleFetch(cookies, "DELETE", "/session");
    });
    beforeEach(() => {
      issuer.present = subject;
    });
    afterEach(async () => assert.equal(await sessionsOf(email), 0));
    const answered = async () => {
      const cookies: Cookies = {};
      const asked = new URL(await begin(cookies));
      return { cookies, asked, answer: await askProvider(issuer, asked.href) };
    };
    const changed = ({ href }: URL, changes: Record<string, string | undefined>): URL => {
      const url = new URL(href);
      for (const [name, value] of Object.entries(changes)) {
        url.searchParams.delete(name);
        if (value !== undefined) url.searchParams.set(name, value);
      }
      return url;
    };

    it("in another browser, with another state, or with none", async () => {
      const { cookies, answer } = await answered();
      const other: Cookies = {};
      const theirs = new URL(await begin(other)).searchParams.get("state") ?? "";
      assert.equal(await finish({}, answer), "expired");
      assert.equal(await finish({ mailkeel_oidc: "guessed" }, answer), "expired");
      assert.equal(await finish(other, answer), "expired", "of a browser with a sign-in of its own");
      for (const state of [theirs, "", undefined])
        assert.equal(await finish({ ...cookies }, changed(answer, { state })), "expired", `${state}`);
      const twice = new URL(answer);
      twice.searchParams.append("state", theirs);
      assert.equal(await finish({ ...cookies }, twice), "expired");
    });

    it("to a question of more than 10 minutes ago, or of a time that the browser changed", async () => {
      const { vault } = await backdoor();
      const outcome = async (flow: string) =>
        finish({ mailkeel_oidc: flow }, { search: `?code=x&state=${vault.sign("sign-in", "state", flow)}` });
      assert.equal(await outcome(`${Date.now() - 601_000}.x.`), "expired");
      assert.equal(await outcome("never.x."), "expired");
      assert.equal(await outcome(`${Date.now() - 590_000}.x.`), "refused", "the provider does not know the code");
      const { cookies, answer } = await answered();
      const later = cookies["mailkeel_oidc"]?.replace(/^\d+/, (at) => String(Number(at) + 1)) ?? "";
      assert.equal(await finish({ mailkeel_oidc: later }, answer), "expired");
    });

    it("with the code of another sign-in, which only its own verifier redeems", async () => {
      const stolen = await answered();
      const thief = await answered();
      assert.equal(stolen.asked.searchParams.get("code_challenge_method"), "S256");
      const code = stolen.answer.searchParams.get("code") ?? "";
      assert.equal(await finish(thief.cookies, changed(thief.answer, { code })), "refused");
    });

    it("of another issuer, and one that is an error or has no code", async () => {
      for (const changes of [
        { iss: "https://other.example" },
        { iss: undefined },
        { code: undefined },
        { code: undefined, error: "access_denied" },
        { id_token: "a.b.c" },
        { response: "a.b.c" },
      ]) {
        const { cookies, answer } = await answered();
        assert.equal(await finish(cookies, changed(answer, changes)), "refused", JSON.stringify(changes));
      }
    });
  });

  describe("verifies an ID token", () => {
    let email: string;
    let subject: string;
    before(async () => {
      ({ email } = await makeMember(own.em, own.team.id, "ADMIN"));
      subject = unique("subject");
    });
    const keyOf = (jwk: SigningKey) => importJWK(jwk, "RS256");
    const claimsFor = (nonce: string): JWTPayload => {
      const now = Math.floor(Date.now() / 1_000);
      const { OIDC_CLIENT_ID: aud } = issuer.settings;
      return { iss: issuer.origin, aud, sub: subject, iat: now, exp: now + 60, nonce, email, email_verified: true };
    };
    const signed = async (
      claims: JWTPayload,
      { key = issuer.key, kid = key.kid }: { key?: SigningKey; kid?: string } = {},
    ) => new SignJWT(claims).setProtectedHeader({ alg: "RS256", kid }).sign(await keyOf(key));
    /** The token endpoint gives this token. @returns what follows, for a new sign-in or that of `cookies` */
    const outcome = async (make: (claims: JWTPayload) => Promise<string>, cookies: Cookies = {}) => {
      const asked = new URL(await begin(cookies)).searchParams;
      const idToken = await make(claimsFor(asked.get("nonce") ?? ""));
      issuer.answers.set("/token", (_request, response) => {
        const body = { access_token: "x", token_type: "Bearer", id_token: idToken };
        response.setHeader("content-type", "application/json").end(JSON.stringify(body));
      });
      const search = `?code=x&state=${asked.get("state")}&iss=${encodeURIComponent(issuer.origin)}`;
      const replay = { ...cookies };
      return { next: await finish(cookies, { search }), again: () => finish(replay, { search }) };
    };

    it("and opens one session by an answer, also where the provider would take its code again", async () => {
      const cookies: Cookies = {};
      const { next, again } = await outcome(signed, cookies);
      assert.deepEqual([next, await addressOf(cookies)], ["/console/", email]);
      assert.equal(await again(), "expired");
      assert.equal(await sessionsOf(email), 1);
      await consoleFetch(cookies, "DELETE", "/session", undefined, {}, at);
    });

    it("and refuses one that is forged, late, of another sign-in, or for another client", async () => {
      log = "";
      const foreign = await makeSigningKey();
      const secret = new TextEncoder().encode(issuer.settings.OIDC_CLIENT_SECRET);
      const late = Math.floor(Date.now() / 1_000) - 60;
      const forged: [string, (claims: JWTPayload) => Promise<string>][] = [
        ["a foreign key", (claims) => signed(claims, { key: foreign })],
        [
          "a foreign key with the name of the provider's",
          (claims) => signed(claims, { key: foreign, kid: issuer.key.kid }),
        ],
        [
          "an HMAC by the client's secret",
          (claims) => new SignJWT(claims).setProtectedHeader({ alg: "HS256" }).sign(secret),
        ],
        ["no signature", async (claims) => new UnsecuredJWT(claims).encode()],
        [
          "a changed claim",
          async (claims) => {
            const [head, , tail] = (await signed(claims)).split(".");
            return [head, Buffer.from(JSON.stringify({ ...claims, admin: true })).toString("base64url"), tail].join(
              ".",
            );
          },
        ],
        ["another nonce", (claims) => signed({ ...claims, nonce: "x" })],
        ["no nonce", ({ nonce: _, ...claims }) => signed(claims)],
        ["another audience", (claims) => signed({ ...claims, aud: "other" })],
        ["an audience beside ours", (claims) => signed({ ...claims, aud: [String(claims.aud), "other"] })],
        ["another issuer", (claims) => signed({ ...claims, iss: "https://other.example" })],
        ["an end that has passed", (claims) => signed({ ...claims, exp: late })],
        ["no subject", ({ sub: _, ...claims }) => signed(claims)],
        ["a long subject", (claims) => signed({ ...claims, sub: "s".repeat(256) })],
      ];
      for (const [name, make] of forged) assert.equal((await outcome(make)).next, "refused", name);
      const unverified = (claims: JWTPayload) => signed({ ...claims, email_verified: false });
      assert.equal((await outcome(unverified)).next, "unverified");
      assert.equal(await sessionsOf(email), 0);
      assert.equal(log.match(/sign-in refused/g)?.length, forged.length + 1);
      for (const secret of [email, subject, issuer.settings.OIDC_CLIENT_SECRET, "code=", "state"])
        assert.ok(!log.includes(secret), secret);
    });

    it("by the keys of the moment: a new one at once, and no more by the old one", async () => {
      const { key } = issuer;
      assert.equal((await outcome(signed)).next, "/console/");
      await issuer.rotateKey();
      assert.equal((await outcome((claims) => signed(claims, { key }))).next, "refused");
      assert.equal((await outcome(signed)).next, "/console/");
      issuer.answers.clear();
      const member = await makeMember(own.em, own.team.id, "VIEWER");
      assert.equal((await walk(person(member.email))).next, "/console/");
    });
  });

  it("says within its time that the provider does not answer as it should, holds no connection, and works again", async () => {
    const { owner } = await makeTeam();
    const session = await signIn(owner.id);
    const server = await serve({ DATABASE_POOL_MAX: 1 }, 1_000);
    const subject = person(owner.email);
    const [discovery, ...others] = ["/.well-known/openid-configuration", "/token", "/jwks", "/me"];
    type Fault = Parameters<OidcIssuer["answers"]["set"]>[1];
    const hang: Fault = () => {};
    const faults: [string | undefined, Fault][] = [
      ...[discovery, ...others].map((path): [string | undefined, Fault] => [path, hang]),
      ["/token", (_request, response) => void response.write("{")],
      ...others.map((path): [string, Fault] => [path, (_, response) => void response.end(Buffer.alloc(300_000, "x"))]),
      ...others.map((path): [string, Fault] => [path, (_, response) => void response.writeHead(500).end("failed")]),
    ];
    for (const [path = "", fault] of faults) {
      const cookies: Cookies = {};
      issuer.present = subject;
      const answer = path === discovery ? undefined : await askProvider(issuer, await begin(cookies, { server }));
      issuer.answers.set(path, fault);
      const next = answer ? finish(cookies, answer, server) : begin(cookies, { server });
      const reads = await Promise.all(Array.from({ length: 3 }, () => get({ ...session }, "/session", server)));
      assert.deepEqual(new Set(reads.map(({ status }) => status)), new Set([200]));
      assert.match(await next, /unavailable$/, path);
      assert.equal(cookies["mailkeel_session"], undefined);
      issuer.answers.clear();
    }
    await eventually(async () => (await walk(subject, { server })).next === "/console/", { what: "a sign-in" });
  });

  it("counts what a network asks, and its refused answers as failed authentications", async () => {
    const server = await serve({ FAILED_AUTHENTICATIONS_PER_MINUTE: 3 });
    await windowWithRoom();
    const ask = async (path: string, network: string) =>
      String((await get({}, path, server, network)).headers.get("location")).replace(/^.*problem=/, "");
    const [asking, failing] = [newNetwork(), newNetwork()];
    const asked: string[] = [];
    for (let n = 0; n < 21; n++) asked.push(await ask(SIGN_IN, asking));
    assert.deepEqual([asked.indexOf("limited"), asked.filter((next) => next === "limited").length], [20, 1]);
    const failed: string[] = [];
    for (let n = 0; n < 4; n++) failed.push(await ask(`${SIGN_IN}/callback?code=x&state=y`, failing));
    assert.deepEqual(failed, ["expired", "expired", "expired", "limited"]);
  });

  it("is the only way in where links are off, but for a link of an operator", async () => {
    const server = await serve({ SIGN_IN_LINKS: "off" });
    const ways = async (of: string) => (await get({}, "/sign-in/ways", of)).json();
    assert.deepEqual(await ways(server), { provider: "Example ID", by_link: false });
    assert.deepEqual(await ways((await stack()).origin), { provider: null, by_link: true });
    const { em, team } = own;
    const member = await transaction(em, (tx) =>
      addMember(tx, team.id, { email: uniqueEmail(), name: "Ada", role: "VIEWER" }),
    );
    const ask = await consoleFetch({}, "POST", "/sign-in", { email: member.email }, {}, server);
    assert.equal(ask.status, 404);
    assert.deepEqual(await execute("select from sign_in_links where email = ?", member.email), []);
    const link = await linkFor(member.id);
    const cookies: Cookies = {};
    assert.equal((await consoleFetch(cookies, "POST", "/session", { link }, {}, server)).status, 200);
    assert.equal(await addressOf(cookies), member.email);
  });
});
