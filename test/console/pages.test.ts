import assert from "node:assert/strict";
import { buildConsole } from "../../console/build.ts";
import { enter, openBrowser } from "../support/browser.ts";
import { makeSender } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

describe("The console's pages", function () {
  this.timeout(120_000);
  before(() => buildConsole());
  const inPage = openBrowser();

  it("show the audience and an import's list", async () => {
    const { origin } = await stack();
    const sender = await makeSender({ recipients: 0 });
    const { em, owner, team, listId, audience } = sender;
    const { id: subscriber } = (await sender.client.post("/subscribers", { email: `c@${audience}` })).body.data;
    await sender.client.post(`/lists/${listId}/subscribers`, { subscriber_ids: [subscriber] });
    await inPage({ locale: "en-GB", timezoneId: "UTC" }, async (page) => {
      const open = (path: string) => page.goto(`${origin}/console/${team.id}/live/${path}`);
      const row = (name: string) => page.getByRole("row", { name });
      await enter(page, owner.id);
      await open("");
      await page.getByRole("region", { name: "Audience" }).getByText("1 person").waitFor();
      await row("Readers 1 +1").waitFor();
      const steps = page.getByRole("region", { name: "First steps" }).getByRole("listitem");
      assert.deepEqual(await steps.allTextContents(), ["Publish your domain's DNS records"]);

      await em.execute(
        `insert into imports (id, team_id, environment, member_id, name, size, state, expires_at, options, outcome)
          values (?, ?, 'LIVE', ?, 'people.csv', 1, 'DONE', now() + interval '1 day', ?, ?)`,
        [
          ...[`imp_${team.id}`, team.id, owner.id],
          ...[JSON.stringify({ kind: "subscribers", listId, uses: [] }), JSON.stringify({ report: { rows: 2_000 } })],
        ],
      );
      await open("imports");
      await row("people.csv subscribers Readers 2,000 Imported").waitFor();
    });
  });
});
