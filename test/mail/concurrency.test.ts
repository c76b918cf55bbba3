import assert from "node:assert/strict";
import { Concurrency } from "../../activities/smtp/concurrency.ts";

/**
 * Runs messages through a model of a server for some time: each takes `latencyMs`, and the server answers no more than
 * `perMs` of them in a millisecond. Returns the clock.
 */
function drive(control: Concurrency, server: { latencyMs: number; perMs: number }, fromMs: number, forMs: number) {
  let now = fromMs;
  while (now < fromMs + forMs) {
    const rate = Math.min(control.target / server.latencyMs, server.perMs);
    now += 1 / rate;
    control.completed(now, { busy: control.target, waiting: control.target, isStaging: true });
  }
  return now;
}

/**
 * Has messages completed for so many milliseconds, `perMs` in each, while all connections are busy, so many messages wait and,
 * unless the send is at its end, the next are staged. Returns the clock.
 */
function completeMessages(
  control: Concurrency,
  waiting: number,
  fromMs: number,
  { forMs = 2_000, perMs = 10, isStaging = true } = {},
) {
  for (let now = fromMs; now < fromMs + forMs; now += 1 / perMs) {
    control.completed(now, { busy: control.target, waiting, isStaging });
  }
  return fromMs + forMs;
}

describe("The number of connections", () => {
  it("rises to the account's limit while latency limits the throughput", () => {
    const control = new Concurrency(200);
    assert.equal(control.target, 32);
    drive(control, { latencyMs: 20, perMs: 100 }, 1, 1_500);
    assert.equal(control.target, 200);
  });

  it("stops rising when more connections do not raise the throughput", () => {
    const control = new Concurrency(200);
    drive(control, { latencyMs: 1, perMs: 10 }, 1, 3_000);
    assert.ok(control.target >= 8 && control.target <= 32, String(control.target));
  });

  it("keeps its value through one moment in which the machine was busy with other work", () => {
    const control = new Concurrency(64);
    const now = drive(control, { latencyMs: 20, perMs: 100 }, 1, 65);
    assert.equal(control.target, 64);
    drive(control, { latencyMs: 20, perMs: 100 }, drive(control, { latencyMs: 60, perMs: 100 }, now, 180), 200);
    assert.equal(control.target, 64);
  });

  it("never exceeds the account's limit, also when that changes", () => {
    const control = new Concurrency(6);
    let now = drive(control, { latencyMs: 20, perMs: 100 }, 1, 2_000);
    assert.equal(control.target, 6);
    control.setMax(2);
    assert.equal(control.target, 2);
    now = drive(control, { latencyMs: 20, perMs: 100 }, now, 2_000);
    assert.equal(control.target, 2);
    control.setMax(50);
    drive(control, { latencyMs: 20, perMs: 100 }, now, 2_000);
    assert.equal(control.target, 50);
  });

  it("never exceeds the account's limit, also when that falls while added connections are compared", () => {
    const control = new Concurrency(200);
    const now = drive(control, { latencyMs: 20, perMs: 100 }, 1, 65);
    assert.equal(control.target, 64);
    control.setMax(20);
    drive(control, { latencyMs: 20, perMs: 100 }, now, 2_000);
    assert.equal(control.target, 20);
  });

  it("does not rise while connections are idle", () => {
    const control = new Concurrency(200);
    for (let now = 1; now < 5_000; now += 10) control.completed(now, { busy: 1, waiting: 1, isStaging: true });
    assert.equal(control.target, 32);
    assert.equal(control.batch, 32);
  });

  it("does not rise while connections wait for messages", () => {
    const control = new Concurrency(200);
    completeMessages(control, 0, 1, { forMs: 5_000, perMs: 5 });
    assert.equal(control.target, 32);
  });

  it("keeps its value at the end of a send, when no message is left to be staged", () => {
    const control = new Concurrency(64);
    const now = completeMessages(control, 1, 1, { forMs: 50.1 });
    assert.equal(control.target, 64);
    completeMessages(control, 0, now, { forMs: 450, isStaging: false });
    assert.equal(control.target, 64);
  });

  it("falls back where those that were added lack messages, unless the rate rose", () => {
    for (const [perMs, connections] of [
      [10, 32],
      [20, 64],
    ] as const) {
      const control = new Concurrency(64);
      const now = completeMessages(control, 1, 1, { forMs: 70 });
      assert.equal(control.target, 64);
      completeMessages(control, 0, now, { forMs: 500, perMs });
      assert.equal(control.target, connections, `${perMs} per ms`);
    }
  });

  it("stays while those that were added lack messages and batches may still grow", () => {
    const control = new Concurrency(200);
    const now = completeMessages(control, 1, 1, { forMs: 50.1 });
    assert.equal(control.target, 64);
    // Batches of 64, 128 and 200.
    completeMessages(control, 0, now, { forMs: 100.1 });
    assert.equal(control.target, 64);
    assert.equal(control.batch, 200);
  });

  it("stays where messages are lacking and the rate rose in every second window", () => {
    const control = new Concurrency(64);
    // A window lasts 50 ms.
    let now = completeMessages(control, 1, 1, { forMs: 50.1 });
    for (let i = 0; i < 5; i++) {
      assert.equal(control.target, 64);
      now = completeMessages(control, 0, now, { forMs: 50.1, perMs: 10 });
      now = completeMessages(control, 0, now, { forMs: 50.1, perMs: 20 });
    }
  });

  it("does not exceed the number above which the server refused", () => {
    const control = new Concurrency(200);
    const now = drive(control, { latencyMs: 20, perMs: 100 }, 1, 300);
    control.refusedAbove(10, now, { replied: true });
    drive(control, { latencyMs: 20, perMs: 100 }, now, 5_000);
    assert.equal(control.target, 10);
  });

  it("falls for a second only when a connection failed without a reply", () => {
    const control = new Concurrency(200);
    for (let i = 0; i < 5; i++) control.refusedAbove(1, 1, { replied: false });
    let now = drive(control, { latencyMs: 20, perMs: 100 }, 1, 900);
    assert.equal(control.target, 1);
    now = drive(control, { latencyMs: 20, perMs: 100 }, now, 3_000);
    assert.equal(control.target, 200);
  });

  it("falls for longer with each connection that failed without a reply, until more are logged in", () => {
    const control = new Concurrency(200);
    const server = { latencyMs: 20, perMs: 100 };
    let now = 1;
    const fellForMs = () => {
      control.refusedAbove(8, now, { replied: false });
      const since = now;
      while (control.target === 8) now = drive(control, server, now, 500);
      return now - since;
    };
    const [first, second, third] = [fellForMs(), fellForMs(), fellForMs()];
    assert.ok(first < 2_000 && second >= 2_000 && third >= 4_000, `${first}, ${second} and ${third} ms`);
    control.admitted(16);
    assert.ok(fellForMs() < 2_000);
  });

  it("follows the connections that log in after another one was refused", () => {
    const control = new Concurrency(200);
    control.refusedAbove(2, 1, { replied: true });
    assert.equal(control.target, 2);
    control.admitted(5);
    assert.equal(control.target, 5);
    drive(control, { latencyMs: 20, perMs: 100 }, 1, 5_000);
    assert.equal(control.target, 5);
  });
});

describe("The messages that are handed over at a time", () => {
  it("are as many as the connections wanted, while these have messages", () => {
    assert.equal(new Concurrency(200).batch, 32);
    assert.equal(new Concurrency(6).batch, 6);
    const control = new Concurrency(200);
    drive(control, { latencyMs: 400, perMs: 0.1 }, 1, 10_000);
    assert.ok(control.target < 200);
    assert.equal(control.batch, control.target);
  });

  it("double while connections lack messages, as far as the account's connections allow", () => {
    const control = new Concurrency(200);
    completeMessages(control, 0, 1, { forMs: 100 });
    assert.equal(control.batch, 64);
    completeMessages(control, 0, 101);
    assert.equal(control.batch, 200);
    assert.equal(control.target, 32);
  });

  it("stay as many while less than half a batch waits, and halve while half a batch waits all the time", () => {
    const control = new Concurrency(200);
    let now = completeMessages(control, 0, 1);
    now = completeMessages(control, 99, now);
    assert.equal(control.batch, 200);
    assert.equal(control.target, 32);
    now = completeMessages(control, 100, now, { forMs: 60 });
    assert.equal(control.batch, 100);
    completeMessages(control, 50, now, { forMs: 200 });
    assert.equal(control.batch, control.target);
  });

  it("are as many as the connections again once the server has become slow", () => {
    const control = new Concurrency(200);
    let now = completeMessages(control, 0, 1);
    assert.equal(control.batch, 200);
    // The next batch is asked for once fewer wait than there are connections, and comes before the next mail has ended.
    for (let waiting = 0; now < 60_000; now += 20) {
      if (waiting < control.target) waiting += control.batch;
      control.completed(now, { busy: control.target, waiting: --waiting, isStaging: waiting < control.target });
    }
    assert.equal(control.batch, control.target);
  });

  it("stay as many when none is left to be staged", () => {
    const control = new Concurrency(200);
    completeMessages(control, 0, 1, { forMs: 500, isStaging: false });
    assert.equal(control.batch, 32);
  });

  it("double in place of the connections once more than a tenth of the messages find none waiting", () => {
    for (const [every, connections] of [
      [10, 64],
      [9, 32],
    ] as const) {
      const control = new Concurrency(200);
      let n = 0;
      for (let now = 1; now <= 52; now += 0.1) {
        control.completed(now, { busy: 32, waiting: ++n % every === 0 ? 0 : 1, isStaging: true });
      }
      assert.deepEqual([control.target, control.batch], [connections, 64], `one of ${every}`);
    }
  });

  it("are as many as the account's connections, also when those become fewer", () => {
    const control = new Concurrency(200);
    completeMessages(control, 0, 1);
    control.setMax(50);
    assert.equal(control.batch, 50);
  });

  it("do not change all the time where few connections wait for batches that are staged slowly", () => {
    // The server takes 5 ms for a mail, on four connections, and a batch is staged for 8 ms.
    const control = new Concurrency(50);
    control.refusedAbove(4, 1, { replied: true });
    let [inFlight, waiting, stagedAt] = [0, 0, 0];
    const batches = new Set<number>();
    for (let now = 1; now < 50_000; now += 1.25) {
      if (now >= stagedAt) {
        waiting += control.batch;
        stagedAt = Number.POSITIVE_INFINITY;
      }
      if (inFlight > 0) {
        const isStaging = stagedAt !== Number.POSITIVE_INFINITY;
        control.completed(now, { busy: inFlight--, waiting, isStaging });
      }
      for (; waiting > 0 && inFlight < 4; waiting--) inFlight++;
      if (waiting < 4) stagedAt = Math.min(stagedAt, now + 8);
      if (now > 5_000) batches.add(control.batch);
    }
    assert.equal(batches.size, 1, [...batches].join(", "));
  });

  it("are few again once the server refuses connections", () => {
    const control = new Concurrency(100);
    const now = completeMessages(control, 0, 1);
    assert.equal(control.batch, 100);
    control.refusedAbove(5, now, { replied: true });
    assert.equal(control.batch, 5);
  });

  it("become so many that connections are added, however long messages are staged and settled", () => {
    // A mail takes 20 ms on its connection, and `overheadMs` to be staged and settled. Three batches share both times.
    for (const [overheadMs, connections] of [
      [0, 200],
      [5, 200],
      [50, 100],
      [500, 16],
    ] as const) {
      const control = new Concurrency(200);
      control.refusedAbove(1, 1, { replied: false });
      for (let now = 1; now < 60_000; ) {
        const underWay = 3 * control.batch;
        const rate = Math.min(control.target / 20, underWay / (20 + overheadMs));
        now += 1 / rate;
        const waiting = Math.max(0, Math.floor(underWay - rate * (20 + overheadMs)));
        control.completed(now, { busy: control.target, waiting, isStaging: true });
      }
      assert.ok(control.target >= connections, `${overheadMs} ms: ${control.target} connections`);
    }
  });
});
