import { type SourcePart, trimmedEnd, trimmedStart } from "./liquid-source.ts";
import { MARKERS, withoutMarkers } from "./marker.ts";
import { refuseReach } from "./template-problem.ts";

/** Stands for a part that differs between recipients. */
export const [MARKER] = MARKERS;

const CONDITION = /^(?:if|unless|case|else|elsif|when|endif|endunless|endcase)$/;
const SILENT = new Set(["#", "assign"]);
/** Nothing in them is printed where it stands; what was captured is printed escaped. */
const SILENT_BLOCKS = new Set(["comment", "capture"]);

/**
 * All text of a template, with every branch of its conditions, and a marker where the text may differ otherwise.
 * @param parts of the source, as `splitTemplate` returns them
 * @param marksConditions whether conditions are marked, too
 * @throws {TemplateError} `hidden_link` for a condition that opens or closes an element
 */
export function flatten(source: string, parts: readonly SourcePart[], marksConditions = true): string {
  const constants = constantsOf(source, parts);
  const pieces: string[] = [];
  /** The piece that the open branch begins with. */
  let branch: number | undefined;
  let depth = 0;
  let trimsNext = false;
  const readCondition = (name: string) => {
    const written = branch === undefined ? "" : pieces.slice(branch).join("");
    assertWholeElements(written);
    // The rest begins anew in every combination of branches only if all that may stand before it has ended.
    const last = pieces.findLast((piece) => piece.trim() !== "")?.trimEnd();
    if (marksConditions && (!/^[{};>]?$/.test(last?.at(-1) ?? "") || !isWhole(written))) pieces.push(MARKER);
    depth += name.startsWith("end") ? -1 : /^(?:if|unless|case)$/.test(name) ? 1 : 0;
    branch = depth > 0 ? pieces.length : undefined;
  };
  /** The block that is open and prints nothing */
  let silent: string | undefined;
  for (const { begin, end, kind, name } of parts) {
    const text = source.slice(begin, end);
    if (silent !== undefined) {
      trimsNext = name === `end${silent}` && text.at(-3) === "-";
      if (name === `end${silent}`) silent = undefined;
    } else if (kind === "text") {
      pieces.push(withoutMarkers(trimsNext ? trimmedStart(text) : text));
      trimsNext = false;
    } else {
      if (text[2] === "-") pieces.push(trimmedEnd(pieces.pop() ?? ""));
      trimsNext = text.at(-3) === "-";
      if (SILENT_BLOCKS.has(name)) silent = name;
      else if (kind === "output") {
        pieces.push(constants.get(/^\{\{-?\s*(\w+)\s*-?\}\}$/.exec(text)?.[1] ?? "") ?? MARKER);
      } else if (CONDITION.test(name)) readCondition(name);
      else if (!SILENT.has(name)) pieces.push(MARKER);
    }
  }
  return pieces.join("");
}

/** A branch is read as rules or declarations of its own if it leaves nothing open. */
function isWhole(branch: string): boolean {
  const open: string[] = [];
  for (const [bracket] of branch.matchAll(/[{}()[\]]/g)) {
    if (/[{([]/.test(bracket)) open.push(bracket);
    else if (!["{}", "()", "[]"].includes(`${open.pop()}${bracket}`)) return false;
  }
  return open.length === 0 && !/["'\\]|\/\*|\*\//.test(branch);
}

function assertWholeElements(branch: string): void {
  const tags = [...branch.matchAll(/<(\/?)style(?=[\t\n\f\r />])/gi)].map(([, slash]) => slash);
  const isPaired = tags.every((slash, i) => (slash === "/") === (i % 2 === 1)) && tags.length % 2 === 0;
  if (!isPaired || /<\/?[a-z]*$/i.test(branch))
    refuseReach("a condition that opens or closes an element; put the whole into it");
}

/** Names that have the same plain value for every recipient, wherever they are printed. */
function constantsOf(source: string, parts: readonly SourcePart[]): Map<string, string> {
  const constants = new Map<string, string>();
  const isSimple = parts.every(({ kind, name }) => kind !== "tag" || name === "assign" || CONDITION.test(name));
  if (!isSimple) return constants;
  const assigned = new Set<string>();
  const printed = new Set<string>();
  let depth = 0;
  for (const { begin, end, kind, name } of parts) {
    if (kind === "text") continue;
    const text = source.slice(begin, end);
    if (/^(?:if|unless|case)$/.test(name)) depth++;
    else if (name.startsWith("end")) depth--;
    if (kind === "output") for (const [word] of text.matchAll(/\w+/g)) printed.add(word);
    if (name !== "assign") continue;
    const variable = /^\{%-?\s*assign\s+([\w-]+)/.exec(text)?.[1] ?? "";
    const value = /^\{%-?\s*assign\s+\w+\s*=\s*(?:"([\w#(),.% -]*)"|'([\w#(),.% -]*)')\s*-?%\}$/.exec(text);
    // Printed before, it is empty; assigned twice, it has two values.
    const isConstant = depth === 0 && value && !assigned.has(variable) && !printed.has(variable);
    if (isConstant) constants.set(variable, value[1] ?? value[2] ?? "");
    else constants.delete(variable);
    assigned.add(variable);
  }
  return constants;
}
