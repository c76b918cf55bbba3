import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { claimPort } from "../../config/ports.ts";
import type { Json } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam } from "../support/factories.ts";
import { needs } from "../support/programs.ts";
import { stack } from "../support/stack.ts";

const SITE = `${import.meta.dirname}/../../deploy/nginx/mailkeel.conf`;
const MIB = 1024 * 1024;

describe("nginx with the configuration of deploy/", () => {
  const program = needs("nginx");
  let folder: string;
  let server: ChildProcess | undefined;
  let origin: string;
  let key: string;

  before(async () => {
    const { origin: api } = await stack();
    key = (await makeTeam()).keys.live;
    const port = await claimPort();
    origin = `http://127.0.0.1:${port}`;
    folder = mkdtempSync("/var/tmp/mailkeel-nginx-");
    // Without TLS, and without the servers that redirect to it and that show the Temporal UI.
    const [upstream = "", , site = ""] = readFileSync(SITE, "utf8").split(/^(?=server \{)/m);
    const own = `${upstream}${site}`
      .replace("127.0.0.1:3000", new URL(api).host)
      .replace("listen 443 ssl", `listen 127.0.0.1:${port}`)
      .replaceAll(/^ *ssl_.*\n/gm, "");
    const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${folder};`);
    writeFileSync(
      `${folder}/nginx.conf`,
      `daemon off; pid ${folder}/pid; error_log stderr crit; events {} http { access_log off; ${paths.join(" ")}\n${own}}`,
    );
    server = spawn(program(), ["-p", folder, "-c", `${folder}/nginx.conf`], { stdio: ["ignore", "ignore", "inherit"] });
    await eventually(
      () =>
        fetch(origin).then(
          ({ ok }) => ok,
          () => false,
        ),
      { what: "nginx" },
    );
  });
  after(async () => {
    if (server && server.exitCode === null) {
      server.kill();
      await once(server, "exit");
    }
    if (folder) rmSync(folder, { recursive: true });
  });

  const post = async (bytes: number) => {
    const response = await fetch(`${origin}/api/v2/lists`, {
      method: "POST",
      headers: { "x-api-key": key, "content-type": "application/json" },
      body: "x".repeat(bytes),
    });
    return { response, body: (await response.json()) as Json };
  };

  it("answers a body that it refuses as the API answers one that it refuses", async () => {
    const [ofApi, ofNginx] = [await post(2.5 * MIB), await post(4 * MIB)];
    for (const { response, body } of [ofApi, ofNginx]) {
      assert.equal(response.status, 413);
      const { request_id } = body.meta;
      assert.match(request_id, /^req_[0-9a-z]{26,32}$/);
      assert.deepEqual([response.headers.get("x-request-id"), body.error.request_id], [request_id, request_id]);
      for (const [name, value] of [
        ["content-type", "application/json; charset=utf-8"],
        ["cache-control", "no-store"],
        ["x-content-type-options", "nosniff"],
      ] as const)
        assert.equal(response.headers.get(name), value);
      delete body.error.request_id;
      // The stack's own address is another one.
      const { pathname, hash } = new URL(body.error.doc_url);
      body.error.doc_url = `${pathname}${hash}`;
    }
    assert.deepEqual(ofNginx.body.error, ofApi.body.error);
    assert.equal((await post(1 * MIB)).response.status, 400);
  });
});
