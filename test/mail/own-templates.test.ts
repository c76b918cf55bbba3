import assert from "node:assert/strict";
import { compileBlocks } from "../../domain/mail/blocks/compile.ts";
import { contentWarnings, tagsWithoutFallback } from "../../domain/mail/content-warnings.ts";
import { showMessage } from "../../domain/mail/message.ts";
import { SAMPLE } from "../../domain/mail/template.ts";
import { OWN_TEMPLATES } from "../../domain/mail/templates/own.ts";
import { BRAND } from "../support/blocks.ts";

describe("The service's templates", () => {
  for (const [id, { subject, preheader, blocks }] of OWN_TEMPLATES) {
    it(`${id} greets each person, lacks the addresses of its buttons and its marked texts alone, and states no colour or footer`, () => {
      const text = JSON.stringify(blocks);
      const html = compileBlocks({ blocks, preheader, brand: BRAND });
      assert.deepEqual(tagsWithoutFallback({ subject, html }), []);
      const [jane, unnamed] = [SAMPLE, { ...SAMPLE, first_name: null, last_name: null }].map((values) =>
        showMessage({ subject, html }, values),
      );
      assert.ok(jane && unnamed);
      assert.match(jane.text, /Hello Jane,/);
      assert.match(unnamed.text, /Hello there,/);
      // Each button is to get its address.
      const buttons = text.match(/"type":"button"/g)?.length ?? 0;
      const [placeholder, ...others] = contentWarnings(jane, true).sort((a, b) => b.kind.localeCompare(a.kind));
      assert.equal(placeholder?.kind, "placeholder");
      assert.deepEqual(others, buttons > 0 ? [{ kind: "empty_link", count: buttons }] : []);
      assert.doesNotMatch(text, /"html"|color|style|unsubscribe/i);
      // A picture of the service's own would be forgotten in a mail.
      assert.doesNotMatch(html, /<img/);
      assert.ok(preheader.length > 20);
      assert.equal(buttons > 0, id !== "letter");
    });
  }
});
