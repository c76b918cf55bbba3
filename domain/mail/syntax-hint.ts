import { nearestWord } from "../../lib/nearest.ts";
import { ALLOWED_FILTERS } from "./liquid-engine.ts";

/** Each with the tag that ends it. */
const BLOCKS = {
  if: "endif",
  unless: "endunless",
  case: "endcase",
  capture: "endcapture",
  comment: "endcomment",
  raw: "endraw",
};
const LIQUID_TAGS = [
  ...Object.entries(BLOCKS).flat(),
  ...["elsif", "else", "when", "assign", "echo", "cycle", "increment", "decrement", "liquid"],
];

const EVERY_ONE = "the guide of merge tags names them";

/**
 * Says what is wrong at a place of a template, and how to write it. Quotes nothing of the template.
 * @param message of LiquidJS, which quotes it @param source from the tag on @param names of merge tags
 */
export function syntaxHint(message: string, source: string, names: readonly string[]): string {
  const [, filter] = /^undefined filter: (.*)/.exec(message) ?? [];
  if (filter !== undefined) {
    const right = nearestWord(filter, ALLOWED_FILTERS);
    return `there is no such filter: ${right ? `write "${right}"` : EVERY_ONE}`;
  }
  const [, tag] = /^tag "(.*)" not found/.exec(message) ?? [];
  if (tag !== undefined) return unknownTagHint(tag, names);
  const [, opened = ""] = /^\{%-?\s*(\w+)/.exec(source) ?? [];
  if (/not closed/.test(message)) {
    // LiquidJS quotes a whole tag as it is, and one without its end in quotes.
    const end = /^tag \{/.test(message) && Object.hasOwn(BLOCKS, opened) && BLOCKS[opened as keyof typeof BLOCKS];
    if (end) return `this tag is not closed: write {% ${end} %} where it ends`;
    if (opened !== "") return "this tag is not closed: write %} at its end";
    const [, name = ""] = /^\{\{-?\s*([\w.-]{1,100})/.exec(source) ?? [];
    return `this tag is not closed: write {{ ${nearestWord(name, names) ?? "first_name"} }}`;
  }
  if (opened === "assign") return 'this cannot be read: write {% assign name = first_name | default: "friend" %}';
  if (opened !== "") return 'this cannot be read: write {% if first_name == "Ada" %} … {% endif %}';
  return 'this cannot be read: write {{ first_name | default: "friend" }}';
}

function unknownTagHint(tag: string, names: readonly string[]): string {
  if (LIQUID_TAGS.includes(tag)) return "this tag has no place here: it stands inside of another one";
  const name = nearestWord(tag, [...LIQUID_TAGS, ...names]) ?? (tag.startsWith("end") ? "endif" : undefined);
  if (name === undefined) return `there is no such tag: ${EVERY_ONE}`;
  return `there is no such tag: write ${names.includes(name) ? `{{ ${name} }}` : `{% ${name} %}`}`;
}
