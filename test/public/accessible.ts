import assert from "node:assert/strict";
import { Parser } from "htmlparser2";

interface Element {
  name: string;
  attributes: Record<string, string>;
  text: string;
}

function elementsOf(html: string): Element[] {
  const elements: Element[] = [];
  const open: Element[] = [];
  const parser = new Parser({
    onopentag: (name, attributes) => {
      const element = { name, attributes, text: "" };
      elements.push(element);
      open.push(element);
    },
    ontext: (text) => {
      for (const element of open) element.text += text;
    },
    onclosetag: () => void open.pop(),
  });
  parser.end(html);
  return elements;
}

/** Relative luminance of a colour such as `#1f5f8b` or `#222`: WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-relative-luminance. */
function luminance(colour: string): number {
  const digits = colour.length === 4 ? colour.slice(1).replace(/./g, "$&$&") : colour.slice(1);
  const [red = 0, green = 0, blue = 0] = (digits.match(/../g) ?? []).map((pair) => {
    const value = Number.parseInt(pair, 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Contrast of two colours, 1 to 21: WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio. */
function contrast(one: string, other: string): number {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

function colourOf(style: string, selector: string, property: string): string {
  const rule = new RegExp(`(?:^|})\\s*${selector} \\{([^}]*)\\}`).exec(style)?.[1] ?? "";
  const value = new RegExp(`(?:^|[;\\s])${property}:[^;]*?(#[0-9a-f]{3,6})\\b`, "i").exec(rule)?.[1];
  return value ?? assert.fail(`${selector} has no ${property}`);
}

/** Language, one heading that is the title, named controls in reading order, contrast 4.5 (WCAG 2.2, AA), no script. */
export function assertAccessible(html: string): void {
  const elements = elementsOf(html);
  const named = (...names: string[]) => elements.filter(({ name }) => names.includes(name));
  const [document] = named("html");
  assert.match(document?.attributes["lang"] ?? "", /^(?:en|de|fr|es)$/);
  const [title, ...titles] = named("title");
  const [heading, ...headings] = named("h1", "h2", "h3", "h4", "h5", "h6");
  assert.ok(title?.text.trim());
  assert.deepEqual([heading?.name, heading?.text, titles, headings], ["h1", title?.text, [], []]);
  assert.equal(named("main").length, 1);
  const inMain = elements.slice(elements.findIndex(({ name }) => name === "main"));
  assert.equal(inMain[1], heading, "the heading comes first");
  assert.deepEqual(named("script", "iframe", "input", "a"), [], "nothing needs a script, a label or another page");
  assert.ok(
    named("img").every(({ attributes }) => attributes["alt"]?.trim()),
    "a logo has the team's name",
  );
  const zoom = named("meta").find(({ attributes }) => attributes["name"] === "viewport")?.attributes["content"] ?? "";
  assert.ok(!/maximum-scale|user-scalable/.test(zoom), "readers may zoom");
  const buttons = named("button");
  for (const { text, attributes } of buttons) {
    assert.ok(text.trim(), "a button is named by its text");
    assert.ok(!["tabindex", "disabled", "autofocus", "aria-hidden"].some((name) => name in attributes));
  }
  assert.equal(new Set(buttons.map(({ text }) => text)).size, buttons.length, "no two buttons have the same name");
  if (buttons.length > 0) {
    const form = inMain.findIndex(({ name }) => name === "form");
    assert.ok(
      inMain.slice(0, form).some(({ name }) => name === "p"),
      "the text stands before the buttons it explains",
    );
    assert.equal(inMain[form]?.attributes["method"], "post");
  }
  assert.ok(!elements.some(({ attributes }) => Object.keys(attributes).some((name) => name.startsWith("on"))));

  assert.ok(buttons.filter(({ attributes }) => attributes["class"] === "main").length <= 1, "one main button");

  const style = named("style")[0]?.text ?? "";
  const dark = /prefers-color-scheme: dark\) \{([\s\S]*)\}/.exec(style)?.[1] ?? "";
  const button = colourOf(style, "\\.main", "background");
  assert.ok(contrast(colourOf(style, "\\.main", "color"), button) >= 4.5, "the text of the main button");
  for (const [what, rules] of Object.entries({ light: style, dark })) {
    const background = colourOf(rules, "main", "background");
    const text = colourOf(rules, "body", "color");
    assert.ok(contrast(text, background) >= 4.5, `text, and the focus that has its colour, in ${what}`);
    const name = colourOf(rules, "header", "color");
    assert.ok(contrast(name, colourOf(rules, "body", "background")) >= 4.5, `the team's name in ${what}`);
    assert.ok(contrast(colourOf(rules, "\\.main", "border-color"), background) >= 3, `the main button in ${what}`);
    assert.ok(contrast(colourOf(style, "button", "border"), background) >= 3, `another button in ${what}`);
    assert.ok(
      contrast(colourOf(style, "\\.main:focus-visible", "outline-color"), background) >= 3,
      `the focus in ${what}`,
    );
  }
  assert.ok(!/outline:\s*(?:0|none)/.test(style));
}
