import { diffLines } from "diff";

const TIMEOUT_MS = 1_000;
/** Lines that stay beside a change. */
const CONTEXT = 2;

/** The lines that only one of two texts has, and some around them. */
export function LineDiff({ from, to }: { from: string; to: string }) {
  const parts = diffLines(from, to, { timeout: TIMEOUT_MS, ignoreNewlineAtEof: true }) ?? [
    { value: from, removed: true, added: false },
    { value: to, removed: false, added: true },
  ];
  return (
    <pre className="diff">
      {parts.map(({ value, added, removed }, index) => {
        const Tag = added ? "ins" : removed ? "del" : "span";
        const lines = value.replace(/\n$/, "").split("\n");
        const isLong = Tag === "span" && lines.length > 2 * CONTEXT + 1;
        const shown = isLong ? [...lines.slice(0, CONTEXT), "…", ...lines.slice(-CONTEXT)] : lines;
        const className = added ? "good" : removed ? "wrong" : "muted";
        // biome-ignore lint/suspicious/noArrayIndexKey: parts have no other name, and none moves
        return <Tag key={index} {...{ className, children: shown.join("\n") }} />;
      })}
    </pre>
  );
}
