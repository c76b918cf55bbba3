import assert from "node:assert/strict";
import { buildConsole } from "../../console/build.ts";
import { enter, openBrowser } from "../support/browser.ts";
import { clientAs } from "../support/console.ts";
import { makeSender } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { insertAppEndpoint, insertDelivery } from "../support/webhooks.ts";

describe("The console's pages", function () {
  this.timeout(120_000);
  before(() => buildConsole());
  const inPage = openBrowser();

  it("show the audience, an import's list, a cancelled send, a domain's way to its signature, the number of suppressions and deliveries as they are", async () => {
    const { origin } = await stack();
    const sender = await makeSender({ recipients: 0 });
    const { em, owner, team, listId, newsletterId, accountId, fromEmail, audience } = sender;
    const { id: subscriber } = (await sender.client.post("/subscribers", { email: `c@${audience}` })).body.data;
    await sender.client.post(`/lists/${listId}/subscribers`, { subscriber_ids: [subscriber] });
    const admin = await clientAs(sender, "ADMIN");
    await inPage({ locale: "en-GB", timezoneId: "UTC" }, async (page) => {
      const open = (path: string) => page.goto(`${origin}/console/${team.id}/live/${path}`);
      const row = (name: string) => page.getByRole("row", { name });
      await enter(page, owner.id);
      await open("");
      const figures = page.getByRole("region", { name: "Audience" });
      await figures.getByText("New subscribers in 30 days").waitFor();
      assert.deepEqual(await figures.getByRole("definition").allTextContents(), ["1", "1"]);
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

      const at = "2026-01-05T02:36:00Z";
      await em.execute("update newsletters set status = 'CANCELLED', send_at = ?, completed_at = ? where id = ?", [
        ...["2026-12-24T08:00:00Z", at, newsletterId],
      ]);
      await open("newsletters");
      await page.getByRole("cell", { name: "Cancelled 5 Jan 2026", exact: true }).waitFor();
      await em.execute("update newsletters set status = 'SENT', send_at = ? where id = ?", [at, newsletterId]);
      await page.reload();
      await page.getByRole("cell", { name: "5 Jan 2026, 02:36", exact: true }).waitFor();

      const domain = fromEmail.split("@")[1] ?? "";
      const key = (await admin.app.accounts.domains.addKey.mutate({ body: { domain, is_first: true } })).data;
      const check = { purpose: "DKIM", name: key.record_name, found: [], todo: null };
      const answer = (state: "missing" | "ok") =>
        page.route(/domains\.check/, (route) =>
          route.fulfill({ json: { result: { data: { data: [{ ...check, state }], meta: {} } } } }),
        );
      await answer("missing");
      await open(`accounts/${accountId}`);
      await page.getByRole("link", { name: domain, exact: true }).click();
      await page.getByText("The key can be activated once its record is found.").waitFor();
      await answer("ok");
      await page.getByRole("button", { name: "Check now" }).click();
      await page.getByRole("button", { name: "Activate", exact: true }).waitFor();

      await admin.api.suppressions.create.mutate({ body: { emails: [`a@${audience}`, `b@${audience}`] } });
      await open("suppressions");
      await page.getByText("2 suppressed addresses").waitFor();

      const tomorrow = new Date(Date.now() + 86_400_000);
      const webhookId = await insertAppEndpoint(sender);
      const { id } = await insertDelivery(sender, webhookId, { status: "PENDING", next_attempt_at: tomorrow });
      await open(`webhooks/${webhookId}`);
      await page.getByRole("cell", { name: "Pending" }).waitFor();
      await em.execute("update webhook_deliveries set status = 'FAILED', next_attempt_at = null where id = ?", [id]);
      await page.getByRole("cell", { name: "Failed" }).waitFor();
    });
  });
});
