import assert from "node:assert/strict";
import { openTransport } from "../../activities/system-mail.ts";
import { type Sink, type SinkOptions, startSink } from "./smtp-sink.ts";

const MAIL = { from: "no-reply@mailkeel.example", to: "jane.doe@example.org", subject: "Hello", text: "Hello" };

describe("The service's own mail", () => {
  const sinks: Sink[] = [];
  let logins = 0;
  beforeEach(() => {
    logins = 0;
  });
  afterEach(async () => {
    for (const sink of sinks.splice(0)) await sink.close();
  });

  const sinkWith = async (options: SinkOptions): Promise<Sink> => {
    const sink = await startSink({
      allowInsecureAuth: true,
      onAuth: ({ username }, _session, done) => {
        logins++;
        done(null, { user: username });
      },
      ...options,
    });
    sinks.push(sink);
    return sink;
  };

  const send = async (url: string) => {
    const transport = openTransport({
      SYSTEM_SMTP_URL: url,
      SMTP_HELO_NAME: "mail.example.com",
      SMTP_TIMEOUT_MS: 2_000,
    });
    await transport.sendMail(MAIL).finally(() => transport.close());
  };

  it("is sent with a login over TLS only, whatever the URL's options say", async () => {
    const plain = await sinkWith({ hideSTARTTLS: true, disabledCommands: ["STARTTLS"] });
    for (const options of ["", "?ignoreTLS=true", "?requireTLS=false", "?opportunisticTLS=true&requireTLS=false"]) {
      await assert.rejects(send(`smtp://me:secret@127.0.0.1:${plain.port}/${options}`), { code: "ETLS" }, options);
    }
    assert.deepEqual([logins, plain.received.length], [0, 0]);
  });

  it("is sent with a login over STARTTLS, and over TLS from the start", async () => {
    for (const secure of [false, true]) {
      const sink = await sinkWith({ secure });
      const scheme = secure ? "smtps" : "smtp";
      await send(`${scheme}://me:secret@127.0.0.1:${sink.port}/?tls.rejectUnauthorized=false`);
      assert.equal(sink.received.length, 1);
    }
    assert.equal(logins, 2);
  });

  it("is sent in clear text without a login, as a relay of the same network takes it", async () => {
    const sink = await sinkWith({ hideSTARTTLS: true, disabledCommands: ["STARTTLS"] });
    await send(`smtp://127.0.0.1:${sink.port}`);
    assert.deepEqual([logins, sink.received.map(({ name }) => name)], [0, ["mail.example.com"]]);
  });
});
