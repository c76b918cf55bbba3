import assert from "node:assert/strict";
import fc from "fast-check";
import { Liquid } from "liquidjs";
import { DATE_PARTS } from "../../domain/mail/liquid-date.ts";
import { checkContent, compileTemplate } from "../../domain/mail/template.ts";
import { TemplateError } from "../../domain/mail/template-problem.ts";

const render = (source: string) => compileTemplate(source, { escape: false }).render({});

describe("A date in a template", () => {
  // LiquidJS moves the clock of the machine, which is inexact where that had summer time or other seconds.
  const zone = process.env["TZ"];
  before(() => {
    process.env["TZ"] = "UTC";
  });
  after(() => {
    if (zone === undefined) delete process.env["TZ"];
    else process.env["TZ"] = zone;
  });

  it("is written as LiquidJS writes it in English, in any zone", () => {
    const liquid = new Liquid({ locale: "en-US", timezoneOffset: 0 });
    const part = fc
      .tuple(fc.constantFrom("%", "%-"), fc.constantFrom(...DATE_PARTS))
      .map(([start, part]) => start + part.slice(1))
      .filter((text) => text !== "%-%");
    const format = fc.array(fc.oneof(part, fc.constantFrom(" ", "-", "é", "of", "{")), { maxLength: 8 });
    const at = fc
      .date({ min: new Date("0101-01-01"), max: new Date("9998-12-31"), noInvalidDate: true })
      .map((date) => date.toISOString());
    const value = fc.oneof(
      at,
      fc.constantFrom("2026-01-05", "1767603600", "Mon, 05 Jan 2026 09:30:00 +0200", "soon", ""),
    );
    // LiquidJS is not exact about the seconds that zones differed by before 1972.
    const recent = fc.tuple(
      fc.date({ min: new Date("1975-01-01"), max: new Date("2100-01-01"), noInvalidDate: true }),
      fc.constantFrom(
        "Europe/Kyiv",
        "america/new_york",
        "UTC",
        "Asia/Kolkata",
        "+05:30",
        "Etc/GMT+5",
        "Asia/Kathmandu",
      ),
    );
    const dated = fc.oneof(
      value.map((text) => ({ text, zone: "" })),
      recent.map(([date, zone]) => ({ text: date.toISOString(), zone: `, "${zone}"` })),
    );
    fc.assert(
      fc.property(dated, format, ({ text, zone }, parts) => {
        const source = `{{ "${text}" | date: "${parts.join("")}"${zone} }}`;
        assert.equal(render(source), liquid.parseAndRenderSync(source), source);
      }),
      { numRuns: 2_000 },
    );
    for (const filter of ["date_to_string", "date_to_long_string", "date"]) {
      for (const text of ["2026-01-05T09:30:00Z", "2026-03-22", "2026-11-13", "soon"]) {
        const source = `{{ "${text}" | ${filter} }}`;
        assert.equal(render(source), liquid.parseAndRenderSync(source), source);
      }
    }
  });

  it("has a format of 200 characters at most, in a draft and in a mail", () => {
    const long = "%b".repeat(101);
    const message = /the format of a date has more than 200 characters/;
    const [problem] = checkContent({
      subject: "News",
      html: `{% if first_name == "x" %}{{ "2026-01-05" | date: "${long}" }}{% endif %}`,
    });
    assert.ok(problem?.kind === "limits");
    assert.match(problem.message, message);
    const halves = `{% assign half = "${"%b".repeat(60)}" %}{% assign all = half | append: half %}{{ "now" | date: all }}`;
    assert.throws(() => render(halves), message);
    assert.equal(render(`{{ "2026-01-05" | date: "${"%b".repeat(100)}" }}`), "Jan".repeat(100));
    assert.throws(
      () => render('{{ "now" | date: "%d", "Atlantis" }}'),
      (error) => {
        assert.ok(error instanceof TemplateError);
        assert.match(error.message, /the time zone of a date does not exist/);
        return true;
      },
    );
  });

  it("has no part that the guide does not list, in a draft and in a mail", () => {
    for (const format of ["%U", "%3d", "100 %", "%-", "%_d", "%:z"]) {
      const [problem] = checkContent({ subject: "News", html: `{{ fields.since | date: "${format}" }}` });
      assert.ok(problem?.kind === "limits", format);
      assert.match(problem.message, /a part that is none of %a %A .*%%$/);
      assert.throws(() => render(`{% assign own = "${format}" %}{{ "now" | date: own }}`), /a part that is none of/);
    }
  });

  it("is written within the time of a mail, as often as a template may hold tags", () => {
    for (const date of ['date: "%A %B %d"', 'date: "%-d %b, %H:%M", "Europe/Kyiv"', "date_to_string"]) {
      const { render } = compileTemplate(`{{ "2026-01-05" | ${date} }}`.repeat(1_000), { escape: true });
      render({});
      assert.doesNotThrow(() => render({}), date);
    }
  });
});
