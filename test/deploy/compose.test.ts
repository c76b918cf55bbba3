import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import ipaddr from "ipaddr.js";
import { parse } from "yaml";
import { z } from "zod";
import { LAYERS } from "../../.dependency-cruiser.ts";
import { isSetting, readEnv, SECRETS } from "../../config/env.ts";
import { CLOSE_MARGIN_MS } from "../../config/stop-limit.ts";
import { OF_OTHERS } from "../../console/build.ts";
import { POOLS } from "../../workers/pools.ts";
import { NEEDED, unneeded } from "./processes.ts";

const ROOT = `${import.meta.dirname}/../..`;
const read = (path: string): string => readFileSync(`${ROOT}/${path}`, "utf8");

const TEXTS = z.array(z.string());
const DURATION = z.string().regex(/^\d+[sm]$/);

/** The keys of Compose files that this one uses: Docker would refuse a misspelt one. */
const SERVICE = z
  .strictObject({
    build: z.string(),
    image: z.string(),
    restart: z.string().regex(/^(unless-stopped|on-failure:\d+)$/),
    init: z.boolean(),
    env_file: z.array(z.strictObject({ path: z.string(), required: z.boolean() })),
    read_only: z.boolean(),
    tmpfs: TEXTS,
    cap_drop: TEXTS,
    security_opt: TEXTS,
    stop_grace_period: DURATION,
    environment: z.record(z.string(), z.union([z.string(), z.number()])),
    networks: TEXTS,
    depends_on: z.record(
      z.string(),
      z.strictObject({ condition: z.enum(["service_healthy", "service_completed_successfully"]) }),
    ),
    ports: TEXTS,
    healthcheck: z.strictObject({
      test: TEXTS,
      interval: DURATION,
      timeout: DURATION,
      retries: z.int(),
      start_period: DURATION,
    }),
    command: TEXTS,
    entrypoint: TEXTS,
    volumes: TEXTS,
  })
  .partial();
type Service = z.infer<typeof SERVICE>;

const COMPOSE = z.strictObject({
  name: z.string(),
  services: z.record(z.string(), SERVICE),
  volumes: z.record(z.string(), z.null()),
  networks: z.record(
    z.string(),
    z.strictObject({ internal: z.boolean(), driver_opts: z.record(z.string(), z.string()) }).partial(),
  ),
});

const document: Record<string, unknown> = parse(read("docker-compose.temporal.yml"), { merge: true });
const compose = COMPOSE.parse(Object.fromEntries(Object.entries(document).filter(([name]) => !name.startsWith("x-"))));
const services = Object.entries(compose.services);
/** Services that are built from the Dockerfile and take settings: all but the mail catcher. */
const ours = services.filter(([, service]) => service.build !== undefined && service.environment !== undefined);

/** Variables that the operator sets. */
const GIVEN: Record<string, string> = {
  POSTGRES_PASSWORD: "0123456789abcdef",
  APP_POSTGRES_PASSWORD: "00112233445566ff",
  TEMPORAL_POSTGRES_PASSWORD: "fedcba9876543210",
  PUBLIC_URL: "https://mail.example.com",
  SIGNING_SECRET: Buffer.alloc(32).toString("base64"),
  ENCRYPTION_KEYS: `k1:${Buffer.alloc(32).toString("base64")}`,
};

/** Fills in `${NAME:-default}` and `${NAME:?advice}` as Compose does. */
const substitute = (text: string): string =>
  text.replace(/\$\{(\w+)(?::([-?])([^}]*))?\}/g, (_, name: string, operator: string | undefined, rest: string) => {
    const value = GIVEN[name] ?? (operator === "-" ? rest : undefined);
    assert.ok(value !== undefined, `${name} is neither given nor has a default`);
    return value;
  });

const networksOf = (name: string): string[] => compose.services[name]?.networks ?? [];

const settingsOf = (service: Service): Record<string, string> =>
  Object.fromEntries(Object.entries(service.environment ?? {}).map(([name, value]) => [name, substitute(`${value}`)]));

describe("docker-compose.temporal.yml", () => {
  it("runs the API and each pool of workers once", () => {
    const pools = services.flatMap(([, { command = [] }]) => (command.includes("--pool") ? [command.at(-1)] : []));
    assert.deepEqual(pools.sort(), Object.keys(POOLS).sort());
    for (const name of Object.keys(POOLS)) {
      assert.deepEqual(compose.services[name]?.command, ["node", "workers/main.ts", "--pool", name]);
    }
    assert.ok(compose.services["api"]?.build);
  });

  for (const [name, service] of ours) {
    it(`gives ${name} every required setting and no unknown one`, () => {
      const given = settingsOf(service);
      assert.deepEqual(
        Object.keys(given).filter((key) => !isSetting(key)),
        [],
      );
      assert.equal(readEnv(given, unneeded(name)).TEMPORAL_NAMESPACE, "mailkeel");
    });

    it(`gives ${name} the secrets that it needs and no others, a role that is not the owner's, and time to stop`, () => {
      const given = settingsOf(service);
      const secrets = [...SECRETS, "MIGRATION_DATABASE_URL"].filter((secret) => secret in given);
      assert.deepEqual(secrets.sort(), [...(NEEDED[name] ?? [])].sort());
      assert.equal(new URL(given["DATABASE_URL"] ?? "").username, "mailkeel_app");
      assert.equal(compose.services["postgres"]?.environment?.["POSTGRES_USER"], "mailkeel");
      const seconds = Number(/^(\d+)s$/.exec(service.stop_grace_period ?? "")?.[1]);
      assert.ok(seconds * 1_000 > readEnv(given, unneeded(name)).SHUTDOWN_GRACE_MS + CLOSE_MARGIN_MS);
      assert.ok(existsSync(`${ROOT}/${service.command?.[1] ?? "api/main.ts"}`), "a file of the image");
    });
  }

  it("passes the settings on networks, load balancers and rate limits to the processes that heed them", () => {
    const heeding = (setting: string) =>
      ours.flatMap(([name, { environment }]) =>
        String(environment?.[setting]).startsWith(`\${${setting}:-`) ? [name] : [],
      );
    for (const setting of ["EGRESS_DENIED_NETWORKS", "SMTP_ALLOWED_HOSTS", "WEBHOOK_HTTPS_ONLY"]) {
      assert.deepEqual(heeding(setting).sort(), ["api", "dispatch", "webhooks"], setting);
    }
    assert.deepEqual(heeding("RETURN_PATH_DOMAIN").sort(), ["dispatch", "intake"]);
    for (const [name] of ours) assert.ok(heeding("SMTP_HELO_NAME").includes(name), name);
    const limits = ["PROXY_ADDRESSES", "PROXY_HOPS", "RATE_LIMIT_PER_MINUTE", "FAILED_AUTHENTICATIONS_PER_MINUTE"];
    const oidc = ["ISSUER", "CLIENT_ID", "CLIENT_SECRET", "NAME", "TEAM_ID", "ROLE_CLAIM"].map(
      (name) => `OIDC_${name}`,
    );
    const signIn = ["OAUTH_ISSUER", "OAUTH_JWKS_URL", "OAUTH_AUDIENCE", ...oidc, "SIGN_IN_LINKS"];
    for (const setting of [...limits, ...signIn]) {
      assert.deepEqual(heeding(setting), ["api"], setting);
    }
  });

  it("counts the connections of the proxy in front of the API for no single address", () => {
    const { api } = compose.services;
    assert.ok(api);
    const networks = readEnv(settingsOf(api), unneeded("api")).PROXY_ADDRESSES;
    // Gateways of networks that Docker makes unless it is configured otherwise.
    for (const gateway of ["172.18.0.1", "172.31.0.1", "192.168.16.1"]) {
      const isProxy = networks.some((network) => ipaddr.parse(gateway).match(ipaddr.parseCIDR(network)));
      assert.ok(isProxy, gateway);
    }
  });

  it("pins every image it does not build, and waits only for services that exist, for health only where that is checked", () => {
    for (const [name, { image, build, depends_on = {} }] of services) {
      if (build === undefined) assert.match(image ?? "", /:\d+\.\d+/, name);
      for (const [other, { condition }] of Object.entries(depends_on)) {
        const target = compose.services[other];
        assert.ok(target, `${name} waits for ${other}`);
        if (condition === "service_healthy") assert.ok("healthcheck" in target, other);
      }
    }
  });

  it("mounts files and volumes that exist", () => {
    for (const source of services.flatMap(([, { volumes = [] }]) => volumes.map((volume) => volume.split(":")[0]))) {
      assert.ok(source);
      assert.ok(source.startsWith("./") ? existsSync(`${ROOT}/${source}`) : source in compose.volumes, source);
    }
  });

  it("keeps the data, Temporal's frontend and Temporal's data on networks without a way out", () => {
    for (const network of ["data", "temporal", "temporal-data", "mail"]) {
      assert.equal(compose.networks[network]?.internal, true, network);
    }
    const members = (network: string) =>
      services.flatMap(([name]) => (networksOf(name).includes(network) ? [name] : []));
    const processes = ours.map(([name]) => name);
    assert.deepEqual(members("data").sort(), [...processes, "postgres"].sort());
    const withTemporal = processes.filter((name) => name !== "intake");
    assert.deepEqual(members("temporal").sort(), [...withTemporal, "temporal", "temporal-ui"].sort());
    assert.deepEqual(members("temporal-data").sort(), ["temporal", "temporal-postgres", "temporal-schema"]);
    assert.deepEqual(members("egress").sort(), ["dispatch", "maintenance", "webhooks"]);
    assert.deepEqual(members("public").sort(), ["api", "intake"]);
    // The API's image also runs `account:connect`, which checks an account's server.
    assert.deepEqual(members("mail").sort(), ["api", "dispatch", "mail", "maintenance"]);
  });

  it("names networks for every service, and lets none that has a way out reach its neighbours there", () => {
    for (const [name] of services) {
      assert.ok(networksOf(name).length > 0, `${name} would be on the default network`);
      for (const network of networksOf(name)) assert.ok(network in compose.networks, network);
    }
    for (const [name, { internal, driver_opts }] of Object.entries(compose.networks)) {
      if (!internal) assert.equal(driver_opts?.["com.docker.network.bridge.enable_icc"], "false", name);
    }
  });

  it("publishes ports on 127.0.0.1 alone, from services on a network that can", () => {
    for (const [name, { ports = [] }] of services) {
      for (const port of ports) assert.match(port, /^127\.0\.0\.1:/, name);
      const hasWayOut = networksOf(name).some((network) => !compose.networks[network]?.internal);
      assert.ok(ports.length === 0 || hasWayOut, name);
    }
  });

  it("requires every secret and says how to make it", () => {
    const asked = new Set(read("docker-compose.temporal.yml").match(/(?<=\$\{)\w+(?=:\?.)/g));
    assert.deepEqual([...asked].sort(), Object.keys(GIVEN).sort());
  });

  it("turns on the settings that fairness between teams needs", () => {
    const values = parse(read("deploy/temporal/dynamicconfig.yaml")) as Record<string, { value: unknown }[]>;
    assert.equal(values["matching.enableFairness"]?.[0]?.value, true);
    assert.equal(values["matching.useNewMatcher"]?.[0]?.value, true);
    // Teams take turns within a partition only.
    assert.deepEqual(values["matching.numTaskqueueWritePartitions"], [{ value: 1 }]);
  });
});

describe("The Dockerfile", () => {
  const lines = read("Dockerfile").split("\n");
  const bundle = lines.slice(0, lines.indexOf("RUN node workers/bundle.ts"));
  const final = lines.slice(lines.findLastIndex((line) => line.startsWith("FROM ")));

  it("runs as a user other than root", () => {
    const user = final.findLast((line) => line.startsWith("USER "))?.split(" ")[1];
    assert.ok(user && !/^(root|0)(:|$)/.test(user), user);
  });

  it("copies files that exist and that .dockerignore does not exclude", () => {
    const ignored = read(".dockerignore").split("\n");
    for (const line of lines.filter((text) => /^COPY (?!--from)/.test(text))) {
      for (const source of line.split(" ").slice(1, -1)) {
        assert.ok(existsSync(`${ROOT}/${source}`), source);
        assert.ok(ignored.includes(`!${source.split("/")[0]}`), `${source} is not in the build's context`);
      }
    }
  });

  it("copies what workflows import of other folders to where it bundles them", () => {
    for (const path of LAYERS["workflows"]?.filter((name) => !name.endsWith(" (types)")) ?? []) {
      const to = path.endsWith(".ts") ? `${dirname(path)}/` : path;
      assert.ok(bundle.includes(`COPY ${path} ./${to}`), path);
    }
  });

  it("copies what the console imports of other folders to where it is built", () => {
    const stage = lines.slice(lines.indexOf("FROM base AS console"), lines.indexOf("RUN node console/build.ts"));
    for (const path of OF_OTHERS) assert.ok(stage.includes(`COPY ${path} ./${dirname(path)}/`), path);
    for (const path of LAYERS["console"] ?? []) assert.ok(path.endsWith(" (types)") || OF_OTHERS.includes(path), path);
  });

  it("copies all that its commands may import", () => {
    const copied = final.flatMap((line) => /^COPY (?!--from)(\S+) /.exec(line)?.[1] ?? []);
    const needed = new Set(["api", "app", "stack", "workers"]);
    for (const path of needed) {
      assert.ok(
        copied.some((source) => `${path}/`.startsWith(`${source}/`)),
        path,
      );
      const imports = LAYERS[path.split("/")[0] ?? ""] ?? [];
      for (const name of imports) if (!name.endsWith(" (types)")) needed.add(name);
    }
  });
});
