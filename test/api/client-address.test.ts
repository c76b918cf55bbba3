import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { clientAddressesOf } from "../../api/client-address.ts";

describe("The client address of a request", () => {
  const of = (remoteAddress: string, forwarded: string[], hops: number, proxies = ["10.0.0.0/8"]) =>
    clientAddressesOf({ PROXY_ADDRESSES: proxies, PROXY_HOPS: hops }).ofRequest({
      socket: { remoteAddress } as Socket,
      headersDistinct: { "x-forwarded-for": forwarded },
    });

  it("is that of its connection, with any X-Forwarded-For", () => {
    assert.equal(of("198.51.100.1", ["203.0.113.7"], 1), "198.51.100.1");
    assert.equal(of("::ffff:198.51.100.1", ["203.0.113.7"], 1), "198.51.100.1");
    assert.equal(of("198.51.100.1", ["203.0.113.7"], 0, []), "198.51.100.1");
  });

  it("is counted from the right of X-Forwarded-For on a load balancer's connection", () => {
    assert.equal(of("10.0.0.1", ["203.0.113.7"], 1), "203.0.113.7");
    assert.equal(of("10.0.0.1", ["192.0.2.66, 203.0.113.7"], 1), "203.0.113.7");
    assert.equal(of("10.0.0.1", ["192.0.2.66", "203.0.113.7"], 1), "203.0.113.7");
    assert.equal(of("10.0.0.1", ["192.0.2.66, 203.0.113.7,10.0.0.2"], 2), "203.0.113.7");
  });

  it("is read in every spelling of an address", () => {
    for (const [spelled, client] of [
      ["203.0.113.7:4711", "203.0.113.7"],
      ["::ffff:203.0.113.7", "203.0.113.7"],
      ["[::ffff:203.0.113.7]:80", "203.0.113.7"],
    ] as const) {
      assert.equal(of("10.0.0.1", [spelled], 1), client, spelled);
    }
    const network = of("10.0.0.1", ["2001:db8:1:2::1"], 1);
    assert.ok(network !== null);
    for (const spelled of ["2001:DB8:1:2:ffff::", "[2001:db8:1:2::9]:443", "2001:db8:1:2::1%eth0"]) {
      assert.equal(of("10.0.0.1", [spelled], 1), network, spelled);
    }
    assert.notEqual(of("10.0.0.1", ["2001:db8:1:3::1"], 1), network);
  });

  it("is not known on a load balancer's connection without PROXY_HOPS", () => {
    assert.equal(of("10.0.0.1", ["203.0.113.7"], 0), null);
  });

  it("is the leftmost entry that a load balancer has added and that can be read", () => {
    assert.equal(of("10.0.0.1", ["203.0.113.7"], 2), "203.0.113.7");
    assert.equal(of("10.0.0.1", ["192.0.2.66, unknown, 203.0.113.7"], 2), "203.0.113.7");
    assert.equal(of("10.0.0.1", ["192.0.2.66, 203.0.113.7, unknown"], 2), "203.0.113.7");
  });

  it("is the load balancer where no entry of one can be read: a client's own are not taken", () => {
    for (const forwarded of [[], [""], ["unknown"], ["203.0.113.7,"], ["3405803783"], ["_hidden"]]) {
      assert.equal(of("10.0.0.1", forwarded, 1), "10.0.0.1", forwarded.join());
    }
    assert.equal(of("::ffff:10.0.0.1", ["192.0.2.66, unknown, unknown"], 2), "10.0.0.1");
  });
});
