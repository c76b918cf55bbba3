import assert from "node:assert/strict";
import { AddressRefused, isLoopback, isPublic, NameNotResolved, type RefusalReason } from "../../lib/address-guard.ts";
import { allowedHostsWarning, openUrlGuard, type UrlGuard } from "../../lib/url-guard.ts";
import { type DnsServer, startDnsServer } from "../support/dns-server.ts";

interface Settings {
  allowed?: string[];
  denied?: string[];
  dns?: string[];
  httpsOnly?: boolean;
}

const guardWith = (settings: Settings = {}, lookupTimeoutMs?: number): UrlGuard =>
  openUrlGuard(
    {
      EGRESS_DENIED_NETWORKS: settings.denied ?? [],
      WEBHOOK_ALLOWED_HOSTS: settings.allowed ?? [],
      WEBHOOK_DNS_SERVERS: settings.dns ?? [],
      WEBHOOK_HTTPS_ONLY: settings.httpsOnly ?? false,
    },
    lookupTimeoutMs === undefined ? {} : { lookupTimeoutMs },
  );

const refusal = (reason: RefusalReason) => (error: unknown) =>
  error instanceof AddressRefused && error.reason === reason;

const words = (text: string): string[] => text.split(" ");
const host = (address: string): string => (address.includes(":") ? `[${address}]` : address);

/**
 * Addresses webhooks never go to: the ranges of IANA's registries of special-purpose addresses
 * (https://www.iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry), with multicast and reserved ones.
 */
const NOT_PUBLIC: Record<string, readonly string[]> = {
  "this network": ["0.0.0.0", "0.1.2.3", "0.255.255.255"],
  private: ["10.0.0.0", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255"],
  "carrier-grade NAT": ["100.64.0.0", "100.127.255.255"],
  loopback: ["127.0.0.1", "127.255.255.254", "::1"],
  unspecified: ["::"],
  "link-local": ["169.254.0.1", "fe80::1", "febf::1"],
  metadata: ["169.254.169.254", "168.63.129.16", "169.254.170.2", "fd00:ec2::254", "100.100.100.200", "192.0.0.192"],
  "protocol assignments": ["192.0.0.1", "2001::1", "2001:1ff:ffff::1"],
  documentation: ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1", "3fff:fff::1"],
  benchmark: ["198.18.0.1", "198.19.255.255", "2001:2::1"],
  "AS112, AMT and 6to4 relay": ["192.31.196.1", "192.52.193.1", "192.88.99.1", "192.175.48.1", "2620:4f:8000::1"],
  multicast: ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
  reserved: ["240.0.0.1", "255.255.255.254", "255.255.255.255", "4000::1", "100::1", "100:0:0:1::1"],
  "segment routing": ["5f00::1"],
  "IPv4-mapped": ["::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:8.8.8.8", "0:0:0:0:0:ffff:a00:1", "::ffff:0:127.0.0.1"],
  "IPv4-compatible": ["::127.0.0.1", "::7f00:1", "::8.8.8.8"],
  "6to4": ["2002:7f00:1::", "2002:808:808::1"],
  NAT64: ["64:ff9b::127.0.0.1", "64:ff9b::808:808", "64:ff9b:1::a00:1"],
  Teredo: ["2001:0:4136:e378:8000:63bf:3fff:fdd2"],
  ORCHID: ["2001:10::1", "2001:20::1"],
  "unique local": ["fc00::1", "fdff::1"],
  "site-local": ["fec0::1", "feff::1"],
  "with a zone": ["fe80::1%eth0", "2606:4700::1%eth0"],
};

const PUBLIC = [
  ...["1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255"],
  ...["128.0.0.0", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "198.17.255.255"],
  ...["198.20.0.0", "203.0.114.0", "223.255.255.255"],
  ...["2606:4700:4700::1111", "2001:200::1", "2001:4860:4860::8888", "2003::1", "2a00:1450::1", "3ffe::1", "2000::1"],
];

describe("An address", () => {
  for (const [what, addresses] of Object.entries(NOT_PUBLIC)) {
    for (const address of addresses)
      it(`is not public: ${address} (${what})`, () => assert.equal(isPublic(address), false));
  }

  for (const address of PUBLIC) it(`is public: ${address}`, () => assert.equal(isPublic(address), true));

  for (const text of ["", " 8.8.8.8", ...words("8.8.8 134744072 0x8.8.8.8 010.8.8.8 08.8.8.8 8.8.8.8. 8.8.8.8/32")]) {
    it(`is not public when it is written ${JSON.stringify(text)}`, () => assert.equal(isPublic(text), false));
  }
});

/** Reasons that a URL has by its text, while every public address is reachable. */
type UrlRefusal = Exclude<RefusalReason, "https_only" | "network_denied" | "invalid_host" | "port">;

describe("A loopback address", () => {
  for (const address of words("127.0.0.1 127.255.255.254 ::1 ::ffff:127.0.0.1"))
    it(`is ${address}`, () => assert.ok(isLoopback(address)));
  for (const address of ["", ...words("126.0.0.1 0.0.0.0 10.0.0.1 :: ::2 ::ffff:10.0.0.1 fe80::1 localhost")])
    it(`is not ${JSON.stringify(address)}`, () => assert.ok(!isLoopback(address)));
});

describe("A webhook's URL", () => {
  const guard = guardWith();

  const REFUSED: Record<UrlRefusal, readonly string[]> = {
    invalid_url: [
      ...[
        "",
        "http://exa mple.com",
        " http://example.com",
        "http://example.com\n",
        "http://exam\tple.com",
        "http://a/\0",
      ],
      ...["http://example.com/\u0085", "http://example.com/\u2028"],
      ...words("example.com/hooks //example.com /hooks http:// https://:443/ http://?x http:example.com"),
      ...words("http:/example.com http:///example.com http:\\\\example.com http://example.com\\@10.0.0.1/"),
      ...words("http://[fe80::1%25eth0]/ http://[::1 http://[1.2.3.4]/ http://1.2.3.256/ http://1.2.3.4.5/"),
      ...words("http://a:65536/ http://./ http://example.com../ http://a%00b/ http://08.8.8.8/"),
    ],
    scheme: words("ftp://example.com file:///etc/passwd gopher://127.0.0.1:6379/_ ws://example.com javascript:0"),
    credentials: words("http://user@example.com https://user:pass@example.com/ http://:pass@example.com http://@a.com"),
    address_spelling: [
      ...words("http://2130706433/ http://017700000001/ http://0x7f000001/ http://0x7f.1/ http://127.1/ http://0/"),
      ...words("http://0177.0.0.1/ http://0x7f.0.0.1/ http://127.0.0.1./ http://8.8.8.8./ http://134744072/"),
      ...words("http://1.131844/ http://8.8.2056/ http://010.010.010.010/ http://0x8.0x8.0x8.0x8/"),
      ...words("http://１２７.0.0.1/ http://①②⑦.0.0.1/ http://127。0。0。1/ http://%31%32%37.0.0.1/"),
    ],
    address_not_public: [
      ...Object.values(NOT_PUBLIC)
        .flat()
        .filter((address) => !address.includes("%"))
        .map((address) => `https://${host(address)}:8443/hooks`),
      ...words("http://localhost http://LOCALHOST:80/ http://localhost./ http://a.b.localhost http://localhost。/"),
      ...words("http://lo\u00adcalhost/ http://%6cocalhost/ http://ⓛocalhost/ http://[0:0:0:0:0:0:0:1]/"),
    ],
    resolves_not_public: [],
    bad_port: words("https://example.com:0/ http://example.com:25/ https://8.8.8.8:587/hooks http://example.com:6667/"),
  };
  for (const [reason, urls] of Object.entries(REFUSED)) {
    for (const url of urls) {
      it(`is refused as ${reason}: ${JSON.stringify(url)}`, () => {
        assert.throws(() => guard.checkUrl(url), refusal(reason as RefusalReason));
      });
    }
  }

  for (const [url, origin] of [
    ["https://example.com/hooks?a=b#c", "https://example.com"],
    ["HTTP://Example.COM:8080", "http://example.com:8080"],
    ["https://example.com./hooks", "https://example.com"],
    ["https://bücher.example/", "https://xn--bcher-kva.example"],
    ["https://exa%6dple.com/", "https://example.com"],
    ["http://8.8.8.8:81/", "http://8.8.8.8:81"],
    ["https://[2606:4700:4700:0::1111]/", "https://[2606:4700:4700::1111]"],
    ["https://example.com/a@b", "https://example.com"],
    ["http://notlocalhost/", "http://notlocalhost"],
    ["http://localhost.example/", "http://localhost.example"],
  ] as const) {
    it(`is taken: ${url}`, () => assert.equal(guard.checkUrl(url).origin, origin));
  }

  it("says how to correct the URL, and names no address", () => {
    for (const reason of Object.keys(REFUSED)) {
      const { message } = new AddressRefused(reason as RefusalReason);
      assert.match(message, /\.$/);
      assert.doesNotMatch(message, /\d+\.\d+\.\d+\.\d+/);
    }
  });

  it("may name a host and port of the setting, and no other port", () => {
    const open = guardWith({ allowed: ["127.0.0.1:4000", "127.0.0.1:25", "localhost:80", "[::1]:443"] });
    for (const url of ["http://127.0.0.1:4000/x", "http://127.0.0.1:25/", "http://localhost/", "https://[::1]/"])
      open.checkUrl(url);
    for (const url of ["http://127.0.0.1:4001/", "https://localhost/", "http://[::1]/", "http://127.0.0.2:4000/"]) {
      assert.throws(() => open.checkUrl(url), refusal("address_not_public"), url);
    }
    assert.throws(() => open.checkUrl("http://user@localhost/"), refusal("credentials"));
    assert.throws(() => open.checkUrl("http://127.1:4000/"), refusal("address_spelling"));
  });

  it("is https where the setting says so, also for a host and port of the setting", () => {
    const strict = guardWith({ httpsOnly: true, allowed: ["127.0.0.1:4000"] });
    strict.checkUrl("https://example.com/hooks");
    for (const url of ["http://example.com/hooks", "HTTP://8.8.8.8/", "http://127.0.0.1:4000/"]) {
      assert.throws(() => strict.checkUrl(url), refusal("https_only"), url);
    }
  });

  it("may not name an address in a denied network, except a host and port of the setting", () => {
    const denied = ["8.8.0.0/16", "2001:4860::/32"];
    const closed = guardWith({ denied, allowed: ["8.8.8.8:8443"] });
    for (const url of ["https://8.8.8.8/", "https://8.8.255.255:1/", "https://[2001:4860:4860::8888]/"]) {
      assert.throws(() => closed.checkUrl(url), refusal("network_denied"), url);
    }
    for (const url of ["https://8.9.0.1/", "https://[2606:4700::1]/", "https://8.8.8.8:8443/"]) closed.checkUrl(url);
    assert.throws(() => closed.checkUrl("https://10.0.0.1/"), refusal("address_not_public"));
  });

  it("has a warning to log while the setting is not empty", () => {
    assert.match(allowedHostsWarning({ WEBHOOK_ALLOWED_HOSTS: ["a:1"] }) ?? "", /a:1/);
    assert.equal(allowedHostsWarning({ WEBHOOK_ALLOWED_HOSTS: [] }), undefined);
  });
});

describe("A host's addresses", () => {
  let dns: DnsServer;
  let guard: UrlGuard;

  before(async () => {
    dns = await startDnsServer({
      "both.test": { a: ["1.1.1.1", "8.8.8.8"], aaaa: ["2606:4700::1"] },
      "v4.test": { a: ["1.1.1.1"] },
      "v6.test": { aaaa: ["2606:4700::1"] },
      "mixed.test": { a: ["1.1.1.1", "10.0.0.1"] },
      "mixed-families.test": { a: ["1.1.1.1"], aaaa: ["::1"] },
      "mapped.test": { a: ["1.1.1.1"], aaaa: ["::ffff:8.8.8.8"] },
      "private.test": { a: ["192.168.1.1"] },
      "metadata.test": { aaaa: ["fd00:ec2::254"] },
      "alias.test": { cname: "v4.test" },
      "inward.test": { cname: "alias-inward.test" },
      "alias-inward.test": { cname: "private.test" },
      "dangling.test": { cname: "gone.test" },
      "empty.test": {},
      "silent.test": { silent: "both" },
      "half.test": { a: ["1.1.1.1"], silent: "aaaa" },
      "half-private.test": { a: ["10.0.0.1"], silent: "aaaa" },
      "many.test": { a: Array.from({ length: 20 }, (_, at) => `1.1.1.${at}`), aaaa: ["2606:4700::1"] },
      "many-mixed.test": { a: [...Array.from({ length: 19 }, (_, at) => `1.1.1.${at}`), "127.0.0.1"] },
    });
    guard = guardWith({ dns: [dns.address] });
  });
  after(() => dns.close());

  const addressesOf = async (hostname: string): Promise<string[]> =>
    (await guard.resolve(hostname, 443)).map(({ address }) => address);

  it("are handed out when all are public, IPv4 first", async () => {
    assert.deepEqual((await addressesOf("both.test")).toSorted(), ["1.1.1.1", "2606:4700::1", "8.8.8.8"]);
    assert.equal((await addressesOf("both.test")).at(-1), "2606:4700::1");
    assert.deepEqual(await addressesOf("v4.test"), ["1.1.1.1"]);
    assert.deepEqual(await addressesOf("v6.test"), ["2606:4700::1"]);
    assert.deepEqual(await addressesOf("alias.test"), ["1.1.1.1"]);
    assert.equal((await addressesOf("many.test")).length, 5);
  });

  const PRIVATE = ["mixed", "mixed-families", "mapped", "private", "metadata", "inward", "many-mixed"];
  for (const name of PRIVATE) {
    it(`are refused when one is not public: ${name}.test`, async () => {
      await assert.rejects(guard.resolve(`${name}.test`, 443), refusal("resolves_not_public"));
    });
  }

  for (const name of ["gone.test", "empty.test", "dangling.test", "a..b", `${"a".repeat(64)}.test`]) {
    it(`are missing when there are none: ${name}`, async () => {
      await assert.rejects(guard.resolve(name, 443), NameNotResolved);
    });
  }

  it("are missing when no server answers in time, and checked when half an answer came", async () => {
    const quick = guardWith({ dns: [dns.address] }, 150);
    await assert.rejects(quick.resolve("silent.test", 443), NameNotResolved);
    assert.deepEqual(await quick.resolve("half.test", 443), [{ address: "1.1.1.1", family: 4 }]);
    await assert.rejects(quick.resolve("half-private.test", 443), refusal("resolves_not_public"));
  });

  it("are not looked up for an IP address, which is checked", async () => {
    assert.deepEqual(await guard.resolve("8.8.8.8", 80), [{ address: "8.8.8.8", family: 4 }]);
    assert.deepEqual(await guard.resolve("[2606:4700::1]", 80), [{ address: "2606:4700::1", family: 6 }]);
    for (const host of ["127.0.0.1", "[::1]", "[::ffff:7f00:1]", "localhost", "a.localhost"]) {
      await assert.rejects(guard.resolve(host, 80), refusal("address_not_public"), host);
    }
  });

  it("are refused when one is in a denied network", async () => {
    for (const network of ["8.8.8.8/32", "2606:4700::/32", "1.0.0.0/8"]) {
      const closed = guardWith({ denied: [network], dns: [dns.address] });
      await assert.rejects(closed.resolve("both.test", 443), refusal("network_denied"), network);
      await assert.rejects(closed.resolve("mixed.test", 443), refusal("resolves_not_public"), network);
    }
    const open = guardWith({ denied: ["1.0.0.0/8"], allowed: ["v4.test:443"], dns: [dns.address] });
    assert.deepEqual(await open.resolve("v4.test", 443), [{ address: "1.1.1.1", family: 4 }]);
    await assert.rejects(open.resolve("v4.test", 8443), refusal("network_denied"));
  });

  it("may be private for a host and port of the setting, and for no other port", async () => {
    const open = guardWith({ allowed: ["private.test:80", "localhost:80"], dns: [dns.address] });
    assert.deepEqual(await open.resolve("private.test", 80), [{ address: "192.168.1.1", family: 4 }]);
    assert.equal((await open.resolve("localhost", 80))[0]?.address, "127.0.0.1");
    await assert.rejects(open.resolve("private.test", 443), refusal("resolves_not_public"));
  });

  it("are looked up anew every time: public at first, private later", async () => {
    dns.names.set("rebinding.test", { a: ["1.1.1.1"] });
    assert.deepEqual(await addressesOf("rebinding.test"), ["1.1.1.1"]);
    dns.names.set("rebinding.test", { a: ["127.0.0.1"] });
    await assert.rejects(guard.resolve("rebinding.test", 443), refusal("resolves_not_public"));
  });
});
