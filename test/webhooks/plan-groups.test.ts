import assert from "node:assert/strict";
import {
  type EndpointLoad,
  GROUP_SIZE,
  type OldDelivery,
  planGroups,
  TEAM_GROUPS,
  type WaitingDeliveries,
} from "../../domain/webhooks/plan-groups.ts";

const ids = (count: number, from = 0) => Array.from({ length: count }, (_, n) => `n${from + n}`);
const old = (count: number, attemptsUsed: number, name = "o"): OldDelivery[] =>
  Array.from({ length: count }, (_, n) => ({ id: `${name}${attemptsUsed}/${n}`, attemptsUsed }));

const WORKING: EndpointLoad = {
  health: "working",
  newGroups: 0,
  oldGroups: 0,
  teamGroups: 0,
  probes: 0,
  isProbed: false,
};
const UNPROVEN: EndpointLoad = { ...WORKING, health: "unproven" };
const FAILING: EndpointLoad = { ...WORKING, health: "failing" };
const next = { id: "next", attemptsUsed: 2 };

/** Lane, attempts used and size of each planned group. */
type Expected = [string, number, number][];

const CASES: [string, Partial<EndpointLoad> & EndpointLoad, Partial<WaitingDeliveries>, Expected][] = [
  ["nothing waits", WORKING, {}, []],
  ["one waits", WORKING, { fresh: ids(1) }, [["NEW", 0, 1]]],
  ["a group is at its first attempt already", { ...WORKING, newGroups: 1 }, { fresh: ids(99) }, []],
  ["that group is held up", { ...WORKING, newGroups: 1 }, { fresh: ids(99), isHeldUp: true }, [["NEW", 0, 99]]],
  ["two that are not full are under way", { ...WORKING, newGroups: 2 }, { fresh: ids(99), isHeldUp: true }, []],
  ["a full one and a rest", WORKING, { fresh: ids(150) }, [["NEW", 0, 100]]],
  [
    "a full one and a rest that is held up",
    WORKING,
    { fresh: ids(150), isHeldUp: true },
    [
      ["NEW", 0, 100],
      ["NEW", 0, 50],
    ],
  ],
  [
    "four full ones and a rest that is held up",
    WORKING,
    { fresh: ids(410), isHeldUp: true },
    [
      ["NEW", 0, 100],
      ["NEW", 0, 100],
      ["NEW", 0, 100],
      ["NEW", 0, 100],
      ["NEW", 0, 10],
    ],
  ],
  ["more than there is room for", { ...WORKING, newGroups: 5 }, { fresh: ids(500) }, [["NEW", 0, 100]]],
  ["no room is left", { ...WORKING, newGroups: 6 }, { fresh: ids(500) }, []],
  ["an unproven endpoint has one group", UNPROVEN, { fresh: ids(500) }, [["NEW", 0, 100]]],
  ["and no second", { ...UNPROVEN, newGroups: 1 }, { fresh: ids(500), isHeldUp: true }, []],
  [
    "a backlog has three places beside new ones",
    WORKING,
    { fresh: ids(10), old: old(350, 0) },
    [
      ["NEW", 0, 10],
      ["BACKLOG", 0, 100],
      ["BACKLOG", 0, 100],
      ["BACKLOG", 0, 100],
    ],
  ],
  [
    "its rest does not wait for a full group",
    WORKING,
    { old: old(101, 0) },
    [
      ["BACKLOG", 0, 100],
      ["BACKLOG", 0, 1],
    ],
  ],
  ["its places are taken", { ...WORKING, oldGroups: 3 }, { fresh: ids(1), old: old(5, 1) }, [["NEW", 0, 1]]],
  [
    "those that used up as many attempts share a group, the oldest delivery's first",
    WORKING,
    { old: [...old(3, 2), ...old(100, 0), ...old(4, 2, "p"), ...old(1, 1)] },
    [
      ["BACKLOG", 2, 7],
      ["BACKLOG", 0, 100],
      ["BACKLOG", 1, 1],
    ],
  ],
  [
    "its team has all its groups under way: its first of each kind is its own",
    { ...WORKING, teamGroups: TEAM_GROUPS },
    { fresh: ids(500), old: old(500, 1) },
    [
      ["NEW", 0, 100],
      ["BACKLOG", 1, 100],
    ],
  ],
  [
    "the team has none left for a further one",
    { ...WORKING, newGroups: 1, oldGroups: 1, teamGroups: TEAM_GROUPS },
    { fresh: ids(500), old: old(500, 1) },
    [],
  ],
  [
    "the team has seven left, of which it leaves as many as it takes",
    { ...WORKING, newGroups: 1, teamGroups: TEAM_GROUPS - 7 },
    { fresh: ids(500) },
    [
      ["NEW", 0, 100],
      ["NEW", 0, 100],
      ["NEW", 0, 100],
    ],
  ],
  [
    "the groups that it takes for new ones count before those for old ones",
    { ...WORKING, teamGroups: TEAM_GROUPS - 4 },
    { fresh: ids(500), old: old(500, 1) },
    [
      ["NEW", 0, 100],
      ["NEW", 0, 100],
      ["BACKLOG", 1, 100],
    ],
  ],
  ["a failing endpoint gets one delivery", FAILING, { fresh: ids(500), old: old(500, 1), next }, [["PROBE", 2, 1]]],
  ["with nothing to probe with", FAILING, { next: null }, []],
  ["a probe is under way", { ...FAILING, probes: 1, isProbed: true }, { next }, []],
  ["the probe before was held long ago", { ...FAILING, probes: 1 }, { next }, [["PROBE", 2, 1]]],
  ["three of them were", { ...FAILING, probes: 3 }, { next }, []],
];

describe("The groups of an endpoint", () => {
  for (const [name, load, waiting, expected] of CASES) {
    it(`are planned when ${name}`, () => {
      const groups = planGroups(load, { fresh: [], isHeldUp: false, old: [], next: null, ...waiting });
      assert.deepEqual(
        groups.map(({ lane, attemptsUsed, ids }) => [lane, attemptsUsed, ids.length]),
        expected,
      );
      const members = groups.flatMap((group) => group.ids);
      assert.equal(new Set(members).size, members.length, "no delivery is in two groups");
      assert.ok(groups.every((group) => group.ids.length <= GROUP_SIZE));
    });
  }

  it("take the oldest deliveries, in their order", () => {
    const [first, second] = planGroups(WORKING, {
      fresh: ids(200),
      isHeldUp: false,
      old: [],
      next: null,
    });
    assert.deepEqual([first?.ids, second?.ids], [ids(100), ids(100, 100)]);
  });
});
