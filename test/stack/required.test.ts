import assert from "node:assert/strict";
import { readEnv, SettingsError } from "../../config/env.ts";
import { GIVEN } from "./support.ts";

describe("The settings", () => {
  it("are refused where work would begin again and again", () => {
    const endless = {
      WEBHOOK_TIMEOUT_MS: "15001",
      WEBHOOK_LADDER_SECONDS: "0,999999,999999,999999",
      DEFERRAL_LADDER_SECONDS: "300,0",
      SMTP_TIMEOUT_MS: "120001",
    };
    for (const [name, value] of Object.entries(endless)) {
      const wrong = (error: unknown) =>
        error instanceof SettingsError && new RegExp(`^ +${name} `, "m").test(error.message);
      assert.throws(() => readEnv({ ...GIVEN, [name]: value }), wrong);
    }
  });

  it("are refused where a deferred recipient would expire before its second try", () => {
    const wrong = (name: string) => (error: unknown) =>
      error instanceof SettingsError && new RegExp(`^ +${name} would let`, "m").test(error.message);
    assert.throws(() => readEnv({ ...GIVEN, DEFERRAL_WINDOW_SECONDS: "299" }), wrong("DEFERRAL_WINDOW_SECONDS"));
    assert.throws(() => readEnv({ ...GIVEN, DEFERRAL_LADDER_SECONDS: "86401" }), wrong("DEFERRAL_LADDER_SECONDS"));
    assert.equal(readEnv({ ...GIVEN, DEFERRAL_WINDOW_SECONDS: "300" }).DEFERRAL_WINDOW_SECONDS, 300);
  });

  it("are enough when all that have no default are given, and are refused without any of them, which is named", () => {
    assert.equal(readEnv(GIVEN).PORT, 3000);
    for (const name of Object.keys(GIVEN)) {
      const missing = (error: unknown) =>
        error instanceof SettingsError && error.message.includes(`${name} is not set`);
      assert.throws(() => readEnv({ ...GIVEN, [name]: "" }), missing);
    }
  });

  it("are refused where links in mails would work for less than 13 months, or a soft bounce count for longer than it is kept", () => {
    const [from, until] = [Date.UTC(2028, 0, 1), Date.UTC(2029, 1, 1)];
    const least = (until - from) / 86_400_000;
    const wrong = (error: unknown) => error instanceof SettingsError && /^ +LEDGER_DAYS .*\b397\b/m.test(error.message);
    assert.throws(() => readEnv({ ...GIVEN, LEDGER_DAYS: String(least - 1) }), wrong);
    const longest = { ...GIVEN, LEDGER_DAYS: String(least), SOFT_BOUNCE_WINDOW_DAYS: "365" };
    assert.equal(readEnv(longest).LEDGER_DAYS, least);
    assert.throws(() => readEnv({ ...longest, SOFT_BOUNCE_WINDOW_DAYS: String(least + 1) }), /SOFT_BOUNCE_WINDOW_DAYS/);
  });

  const PAIRS = {
    "a worker's version": { WORKER_DEPLOYMENT_NAME: "mailkeel", WORKER_BUILD_ID: "1" },
    "an issuer of OAuth tokens": {
      OAUTH_ISSUER: "https://issuer.example.com",
      OAUTH_JWKS_URL: "https://issuer.example.com/jwks.json",
    },
    "a certificate of the intake": {
      INTAKE_TLS_KEY_FILE: "/etc/mailkeel/key.pem",
      INTAKE_TLS_CERTIFICATE_FILE: "/etc/mailkeel/certificate.pem",
    },
  };

  for (const [what, pair] of Object.entries(PAIRS)) {
    it(`take ${what} whole or not at all`, () => {
      const read: Record<string, unknown> = readEnv({ ...GIVEN, ...pair });
      for (const [name, value] of Object.entries(pair)) {
        assert.equal(read[name], value);
        const half = (error: unknown) => error instanceof SettingsError && error.message.includes(`${name} is not set`);
        assert.throws(() => readEnv({ ...GIVEN, ...pair, [name]: "" }), half);
      }
    });
  }
});
