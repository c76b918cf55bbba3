import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { consoleClient, signIn } from "../support/console.ts";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { makeSender, type Sender } from "../support/sending.ts";

describe("The check of a draft's links in the console", () => {
  let site: Receiver;
  before(async () => {
    site = await openReceiver();
  });
  after(() => site.close());

  const linked = (...paths: string[]) => paths.map((path) => `<a href="${site.origin}${path}">x</a>`).join("");
  async function clientOf({ owner, team, newsletterId }: Sender) {
    const { app } = await consoleClient(await signIn(owner.id), team.id);
    const query = { type: "newsletter", id: newsletterId } as const;
    return {
      links: async () => (await app.content.links.query({ query })).data,
      show: () => app.content.check.query({ query }),
    };
  }

  it("asks each link once: none with a merge tag, and no page of this service", async () => {
    site.behaveAt("/gone", (_, response) => void response.writeHead(404).end());
    const own = `<a href="mailto:a@example.com">m</a><a href="{{ unsubscribe_url }}">u</a>`;
    const body = `${linked("/a", "/a", "/gone", "/{{ email }}")}${own}<a href="http://10.0.0.1/">i</a>`;
    const { links } = await clientOf(await makeSender({ recipients: 0, body }));
    const { links: found, left } = await links();
    assert.deepEqual(
      found.map(({ url, outcome }) => [url, outcome]),
      [
        [`${site.origin}/a`, "fine"],
        [`${site.origin}/gone`, "broken"],
        ["http://10.0.0.1/", "unchecked"],
      ],
    );
    assert.equal(left, 0);
    assert.deepEqual(site.received.map(({ path }) => path).sort(), ["/a", "/gone"]);
  });

  it("holds up the next check of its team, and no other read", async () => {
    const held: ServerResponse[] = [];
    site.behaveAt("/slow", (_, response) => void held.push(response));
    const { links, show } = await clientOf(await makeSender({ recipients: 0, body: linked("/slow") }));
    const checks = [links(), links()];
    await site.until("/slow", 1);
    await show();
    assert.equal(held.length, 1);
    for (const n of [1, 2]) {
      await site.until("/slow", n);
      held[n - 1]?.writeHead(200).end();
    }
    assert.deepEqual(
      (await Promise.all(checks)).map(({ links: [link] }) => link?.outcome),
      ["fine", "fine"],
    );
  });
});
