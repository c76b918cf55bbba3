import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { Liquid } from "liquidjs";
import { checkContent, compileTemplate, type MergeValues } from "../../domain/mail/template.ts";
import { TemplateError } from "../../domain/mail/template-problem.ts";
import { MERGE_TAGS } from "../../lib/merge-tags.ts";
import { cpuMs } from "../support/cpu.ts";

const newsletter = (name: string) => readFileSync(new URL(`../data/newsletters/${name}`, import.meta.url), "utf8");

const render = (source: string, values: MergeValues) => compileTemplate(source, { escape: true }).render(values);

describe("A template", () => {
  it("escapes values in HTML only, and prints nothing for a missing value", () => {
    const values = { first_name: `<b>"Zoë" & 'Co'</b>`, last_name: null };
    const source = "Hi {{ first_name }}{{ last_name }}{{list_name}}!";
    assert.equal(render(source, values), "Hi &lt;b&gt;&#34;Zoë&#34; &amp; &#39;Co&#39;&lt;/b&gt;!");
    assert.equal(compileTemplate(source, { escape: false }).render(values), `Hi <b>"Zoë" & 'Co'</b>!`);
  });

  it("never evaluates template code in a value", () => {
    for (const source of ["{{ first_name }}", "{{ first_name | default: 'x' }}"]) {
      assert.equal(render(source, { first_name: "{{ email }}{% if x %}", email: "secret" }), "{{ email }}{% if x %}");
    }
  });

  it("cannot print a value unescaped", () => {
    const values = { first_name: "<i>" };
    assert.throws(() => render("{{ first_name | raw }}", values), TemplateError);
    for (const source of [
      "{{ first_name | escape }}",
      "{{ first_name | escape | upcase | downcase }}",
      "{% echo first_name %}",
      "{% cycle first_name %}",
      "{% assign x = first_name %}{{ x }}",
      "{% capture x %}{{ first_name }}{% endcapture %}{{ x }}",
      "{% liquid echo first_name %}",
    ]) {
      assert.doesNotMatch(render(source, values), /<i>/i, source);
    }
    assert.equal(render("{{ first_name | escape }}", values), "&lt;i&gt;");
  });

  it("keeps line breaks and control characters out of a subject", () => {
    for (const source of ["Hi {{ first_name }}", "Hi {{ first_name | append: '' }}"]) {
      const subject = compileTemplate(source, { escape: false, singleLine: true });
      assert.equal(subject.render({ first_name: "A\r\nBcc: x@y\u0000\u2028z" }), "Hi A Bcc: x@y z");
    }
  });

  it("finds a text in a text, and an element in a list", () => {
    for (const [condition, printed] of [
      ["email contains '@example.com'", "yes"],
      ["email contains first_name", "yes"],
      ["email contains '@example.org'", "no"],
      ["list contains 'b'", "yes"],
      ["list contains 'ab'", "no"],
    ]) {
      const source = `{% assign list = "a,b" | split: "," %}{% if ${condition} %}yes{% else %}no{% endif %}`;
      assert.equal(render(source, { email: "jane@example.com", first_name: "jane" }), printed, condition);
    }
  });

  it("lists the variables it reads, without its own local ones", () => {
    const source = `{{ email }}{% assign a = first_name %}{{ a }}{% if items %}{{ items }}
      {% endif %}{% capture c %}{{ product.name }}{% endcapture %}{{ c }}`;
    const expected = ["email", "first_name", "items", "product.name"];
    assert.deepEqual([...compileTemplate(source, { escape: true }).variables].sort(), expected);
  });

  it("renders on the fast path exactly as liquidjs does", () => {
    const liquid = new Liquid({ outputEscape: "escape", templates: {}, ownPropertyOnly: true });
    liquid.registerFilter("url_encode", (value) => encodeURIComponent(String(value ?? "").toWellFormed()));
    const space = fc.constantFrom("", " ", "\n", "\t ");
    const tags = [...MERGE_TAGS, "fields.city", "fields.orders", "fields.vip", "fields.constructor"];
    const filter = fc.constantFrom("", "", "|url_encode", "\n| url_encode");
    const output = fc
      .tuple(space, fc.constantFrom(...tags), filter, space)
      .map(([a, tag, filter, b]) => `{{${a}${tag}${filter}${b}}}`);
    const literal = fc.oneof(
      fc.string({ unit: "grapheme" }),
      fc.constantFrom("{", "}", "{ {", "}}", "%}", "\r\n", ".", "-"),
    );
    const source = fc.array(fc.oneof(output, literal), { maxLength: 12 }).map((parts) => parts.join(""));
    const value = fc.option(fc.oneof(fc.string({ unit: "binary" }), fc.constantFrom("<>&\"'", "{{email}}")), {
      nil: null,
    });
    const texts = fc.record(Object.fromEntries(MERGE_TAGS.map((tag) => [tag, value])));
    const city = fc.oneof(fc.string({ unit: "binary" }), fc.constantFrom("<>&", "{{email}}"));
    const fields = fc.record({ city, orders: fc.double({ noNaN: true }), vip: fc.boolean() }, { requiredKeys: [] });
    const values = fc.tuple(texts, fields).map(([given, custom]) => ({ ...given, fields: { ...custom } }));
    fc.assert(
      fc.property(source, values, (text, given) => {
        let expected: string;
        try {
          expected = liquid.parseAndRenderSync(text, given);
        } catch {
          assert.throws(() => render(text, given), TemplateError);
          return;
        }
        assert.equal(render(text, given), expected);
      }),
      { numRuns: 1_000 },
    );
  });
});

describe("The check of a draft", () => {
  it("takes the custom fields that recipients may have, and names each other one", () => {
    const content = {
      subject: "{{ fields.city }}",
      html: `{% if fields.vip %}{{ fields.orders | plus: 1 }}{% endif %}{{ fields['since'] | date: "%d" }}`,
    };
    assert.deepEqual(checkContent(content, ["city", "vip", "orders", "since"]), []);
    assert.deepEqual(checkContent(content, ["city", "orders"]), [
      { kind: "unknown_tag", field: "html", tag: "fields.vip" },
      { kind: "unknown_tag", field: "html", tag: "fields.since" },
    ]);
    const whole = { subject: "", html: "{{ fields }}{{ fields[first_name] }}{{ fields.city.size }}" };
    assert.deepEqual(
      checkContent(whole, ["city"]).map((problem) => problem.kind === "unknown_tag" && problem.tag),
      ["fields", "fields.city.size"],
    );
  });

  it("finds no problem in a real newsletter", () => {
    assert.deepEqual(checkContent({ subject: "News", html: newsletter("responsive-plain.html") }), []);
  });

  it("names every unknown tag of a real template", () => {
    const problems = checkContent({ subject: "{{ product }}", html: newsletter("welcome-merge-tags.html") });
    const tags = ["name", "action_url", "login_url", "username", "trial_length", "trial_start_date", "trial_end_date"];
    assert.deepEqual(problems, [
      { kind: "unknown_tag", field: "subject", tag: "product" },
      ...[...tags, "support_email", "live_chat_url", "help_url"].map((tag) => ({
        kind: "unknown_tag",
        field: "html",
        tag,
      })),
    ]);
  });

  for (const html of [
    "{% for i in (1..3) %}{{ i }}{% endfor %}",
    "{% tablerow i in (1..3) %}{{ i }}{% endtablerow %}",
    '{% assign unsubscribe_url = "x" %}{{ unsubscribe_url }}',
    "{% capture email %}x{% endcapture %}",
    "{% increment first_name %}",
    "{% break %}",
    "{% continue %}",
  ]) {
    it(`refuses ${html}`, () => {
      assert.equal(checkContent({ subject: "", html })[0]?.kind, "forbidden_tag");
    });
  }

  it("refuses a property of a merge tag as unknown", () => {
    for (const tag of ["email.size", "email.constructor"]) {
      assert.deepEqual(checkContent({ subject: "", html: `{{ ${tag} }}` }), [
        { kind: "unknown_tag", field: "html", tag },
      ]);
    }
  });

  for (const tag of ["include", "render", "layout", "block"]) {
    it(`refuses the tag "${tag}"`, () => {
      for (const html of [`a {% ${tag} "/etc/passwd" %}`, `{% liquid\n ${tag} "x" %}`, `{%- ${tag} x -%}`]) {
        assert.deepEqual(checkContent({ subject: "", html }), [{ kind: "forbidden_tag", field: "html", tag }]);
      }
    });
  }

  for (const html of [
    "{{ email",
    "{% if email %}",
    "{% nope %}",
    "{{ email | nope }}",
    "{{ }}",
    "{{{ email }}",
    "{% endif %}",
  ]) {
    it(`reports the syntax error of ${html}`, () => {
      const problems = checkContent({ subject: "ok", html });
      assert.deepEqual(
        problems.map(({ kind, field }) => ({ kind, field })),
        [{ kind: "syntax", field: "html" }],
      );
    });
  }

  const hostile = {
    "a string that doubles": `{% assign x = 'abcdefgh' %}${"{% assign x = x | append: x %}".repeat(99)}`,
    "a capture that doubles": `{% assign x = 'abcdefgh' %}${"{% capture x %}{{ x }}{{ x }}{% endcapture %}".repeat(99)}`,
    "deep nesting": "{% if email %}".repeat(50_000),
    "a wide date": "{{ 'now' | date: '%1000000000d' }}",
    "a range of millions": "{% assign x = (1..2000000) %}",
    "sheer length": "x".repeat(2_000_001),
    "a branch for people without a name": `{% assign x = 'abcdefgh' %}{% unless first_name %}${"{% assign x = x | append: x %}".repeat(99)}{% endunless %}`,
  };
  for (const [what, html] of Object.entries(hostile)) {
    it(`stops ${what} within 1.5 s of CPU time`, () => {
      const ms = cpuMs(() => {
        const [problem] = checkContent({ subject: "ok", html });
        assert.equal(problem?.kind, "limits");
      });
      assert.ok(ms < 1_500, `took ${ms} ms`);
    });
  }

  it("gives no template access to JavaScript objects", () => {
    const probes = ["constructor", "__proto__", "email.constructor", "toString", "email.length.constructor"];
    for (const probe of probes) assert.equal(render(`{{ ${probe} }}`, { email: "a" }), "", probe);
  });
});
