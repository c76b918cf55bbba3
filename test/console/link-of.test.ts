import assert from "node:assert/strict";
import { linkOf, linkProblem, linkTags } from "../../console/parts/draft/blocks/text.ts";

describe("A link that is written in the editor of blocks", () => {
  it("is completed where it is an email address, or begins with the name of a server", () => {
    const cases: [string, string][] = [
      [" anna@example.com ", "mailto:anna@example.com"],
      ["example.com/x?a=1", "https://example.com/x?a=1"],
      ["https://anna@example.com", "https://anna@example.com"],
      ["{{ web_url }}", "{{ web_url }}"],
      ["htmlemail", "htmlemail"],
      ["", ""],
    ];
    for (const [typed, link] of cases) assert.equal(linkOf(typed), link);
  });

  it("is refused with the words of the service, and may be a merge tag that is a URL", () => {
    const rule = "The link must begin with http:, https:, mailto: or tel:, or be one merge tag.";
    for (const link of ["{{ web_version_url }}", "htmlemail", "https://a b"]) assert.equal(linkProblem(link), rule);
    const tagRule = "The link has a merge tag that is not read: write it as {{ name }}, behind the name of the server.";
    const unread = ["{{first_name|upcase}}", "?a={{ true }}"].map((end) => `https://x.com/${end}`);
    for (const link of [...unread, "https://{{ fields.shop }}.com/", "mailto:a@x.com?subject={{email}}"])
      assert.equal(linkProblem(link), tagRule, link);
    const long = `https://x.com/${"x".repeat(2_000)}`;
    assert.equal(linkProblem(long), "The link may have 2,000 characters at most.");
    assert.equal(linkProblem("https://x.com/{{frist_name}}?a={{ unsubscribe_url }}"), undefined);
    assert.equal(linkProblem('https://x.com/?q={"a":{"b":1}}'), undefined);
    const offered = linkTags(["email", "unsubscribe_url", "web_url", "fields.shop"]);
    assert.deepEqual(offered, ["{{ unsubscribe_url }}", "{{ web_url }}", "{{ fields.shop }}"]);
    for (const link of ["", ...offered]) assert.equal(linkProblem(link), undefined);
  });
});
