import assert from "node:assert/strict";
import { refusedPlace } from "../../console/parts/draft/blocks/text.ts";
import { button, columns, document, linkTo, paragraph, words } from "../support/blocks.ts";

describe("The place of a refusal in blocks", () => {
  const link = paragraph("Read ", words("the report", linkTo("x:")));
  const social = { type: "socialLinks", attrs: { links: [{ network: "x", href: "x" }] } };
  const blocks = JSON.stringify(document(button("Go", "x"), columns([link], [social])));

  for (const [param, path, said] of [
    ["blocks.content[0].attrs.href", [0], "The link of the button “Go”"],
    ["document.blocks.content[0].attrs.href", [0], "The link of the button “Go”"],
    [
      "blocks.content[1].content[0].content[0].content[1].marks[0].attrs.href",
      [1, 0, 0, 1],
      "The link of the text “the report”",
    ],
    ["blocks.content[1].content[1].content[0].attrs.links[0].href", [1, 1, 0], "The link of the social links"],
  ] as const) {
    it(`is said in words: ${param}`, () => assert.deepEqual(refusedPlace(blocks, param), { path, words: said }));
  }

  it("is none for another field, and once the block is gone", () => {
    for (const param of ["blocks", "subject", "blocks.content[7].attrs.href", undefined]) {
      assert.equal(refusedPlace(blocks, param), undefined);
    }
  });
});
