import assert from "node:assert/strict";
import { ComposedMessages } from "../../activities/dispatch/content.ts";
import { TemplateError } from "../../domain/mail/template-problem.ts";

const contentOf = (html: string, fromName = "News") => ({
  subject: "News",
  html,
  fromEmail: "news@example.com",
  fromName,
});
const send = (sendId: string, accountId = "account") => ({ teamId: "team", sendId, accountId });

describe("The composed messages of a dispatch worker", () => {
  it("are kept for each account of a send", async () => {
    const messages = new ComposedMessages();
    const [first, second] = ["one", "two"].map((account) =>
      messages.compose(send("a", account), contentOf("<p>News</p>")),
    );
    assert.notEqual(first, second);
    assert.equal(messages.compose(send("a", "one"), contentOf("<p>News</p>")), first);
    await Promise.all([first, second]);
  });

  it("are composed again when the sender's name has changed", async () => {
    const messages = new ComposedMessages();
    const recipient = {
      email: "a@b.example",
      unsubscribeUrl: "https://x.example/u",
      messageId: "1@x.example",
      date: new Date(),
    };
    for (const name of ["Before", "After"]) {
      const { message } = (await messages.compose(send("a"), contentOf("<p>News</p>", name))).fill(recipient);
      assert.match(message.toString(), new RegExp(`From: "${name}"`));
    }
  });

  it("are kept for a few sends only, the latest used", async () => {
    const messages = new ComposedMessages();
    const large = contentOf(`<p>${"x".repeat(1_900_000)}</p>`);
    const [a, b] = [messages.compose(send("a"), large), messages.compose(send("b"), large)];
    assert.equal(messages.compose(send("a"), large), a);
    const c = messages.compose(send("c"), large);
    assert.equal(messages.compose(send("a"), large), a);
    const again = messages.compose(send("b"), large);
    assert.notEqual(again, b);
    await Promise.all([a, b, c, again]);
  });

  it("do not keep a failure", async () => {
    const messages = new ComposedMessages();
    const broken = () => messages.compose(send("a"), contentOf("{{ email"));
    const first = broken();
    await assert.rejects(first, TemplateError);
    const second = broken();
    assert.notEqual(second, first);
    await assert.rejects(second, TemplateError);
  });
});
