import assert from "node:assert/strict";
import { contentWarnings, tagsWithoutFallback } from "../../domain/mail/content-warnings.ts";

const warnings = (html: string, subject = "") =>
  contentWarnings({ subject, html, text: "" }, true).map(({ kind, count }) => `${kind} ${count}`);

describe("What could be better in a mail", () => {
  it("is an image without an alternative text that can be seen", () => {
    const html = `<img src=a><img src=b alt=" "><img src=c alt="Cat"><img src=d width="1" alt="">`;
    assert.deepEqual(warnings(html), ["image_without_text 2"]);
  });

  it("is a link without an address, without a scheme or with http, and an address without a link", () => {
    assert.deepEqual(warnings(`<a href="">a</a><a href="#">b</a><a href="https://">c</a><a name="x">d</a>`), [
      "empty_link 3",
    ]);
    assert.deepEqual(warnings(`<a href="/a">a</a><a href="example.com">b</a><a href="//example.com">c</a>`), [
      "relative_link 3",
    ]);
    assert.deepEqual(warnings(`<a href="HTTP://example.com">a</a>`), ["insecure_link 1"]);
    assert.deepEqual(warnings(`<a href="mailto:a@example.com">a</a><a href="tel:1">b</a><a href="#top">c</a>`), []);
    const text = `www.example.com <b>https://example.com</b> <a href="https://example.com">https://example.com</a>`;
    assert.deepEqual(warnings(`<style>@import "https://example.com"</style>${text}`), ["bare_address 2"]);
  });

  it("is a mail of a team without a postal address", () => {
    const shown = { subject: "", html: "", text: "" };
    assert.deepEqual(contentWarnings(shown, false), [{ kind: "no_postal_address", count: 1 }]);
  });

  it("is a text in square brackets that a template left to its writer", () => {
    const html = "<style>[class]{}</style><p>[Your name], [your team]</p><p>[1]</p>";
    assert.deepEqual(warnings(html, "[Newsletter]: News"), ["placeholder 3"]);
  });

  it("is a subject that phones cut, and HTML that Gmail cuts", () => {
    assert.deepEqual(warnings("", "ü".repeat(60)), []);
    assert.deepEqual(warnings("x".repeat(102_001), "ü".repeat(61)), ["long_subject 61", "large 102001"]);
  });

  it("is a merge tag that a person may lack, without a fallback and without a condition", () => {
    const tags = (html: string, subject = "") => tagsWithoutFallback({ subject, html });
    assert.deepEqual(tags("{{ first_name }} {{- fields.town | upcase }} {{email}}", "{{last_name}}{{ first_name }}"), [
      "last_name",
      "first_name",
      "fields.town",
    ]);
    assert.deepEqual(tags(`{{ first_name | default: "you" }} {{ fields.town | upcase | default: "home" }}`), []);
    assert.deepEqual(
      tags("{% if first_name %}Hi {{ first_name }}{% endif %} {{ first_names }} {{ x.first_name }}"),
      [],
    );
  });
});
