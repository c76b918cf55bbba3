import { lazy, useState } from "react";
import { Act } from "../act.tsx";
import { Part } from "../page.tsx";
import { EMPTY } from "./blocks/text.ts";
import { type Content, isHtml } from "./content.ts";
import type { BodyProps } from "./drafts.ts";

// Pages without a draft do not load them.
const BlocksEditor = lazy(async () => ({ default: (await import("./blocks/editor.tsx")).BlocksEditor }));
const HtmlEditor = lazy(async () => ({ default: (await import("./html.tsx")).HtmlEditor }));

interface Props extends Omit<BodyProps, "value" | "onChange"> {
  content: Content;
  onChange: (content: Partial<Content>) => void;
  problem: string | undefined;
  /** The HTML of the blocks, once they are saved. */
  compile: () => Promise<string>;
}

/** The editor of a mail's text. Only the writer changes blocks into HTML, or HTML into blocks. */
export function Body({ content, onChange, problem, compile, ...more }: Props) {
  const [isEmptyHtml, setEmptyHtml] = useState(false);
  const isOfHtml = isHtml(content) || (isEmptyHtml && content.blocks === "");
  const [words, other] = isOfHtml ? TO_BLOCKS : TO_HTML;
  const change = async () => {
    if (isOfHtml) return onChange({ blocks: (await import("./blocks/schema.ts")).blocksOf(content.body) });
    setEmptyHtml(true);
    onChange({ blocks: "", body: await compile() });
  };
  return (
    <section className="stack" aria-label={isOfHtml ? "HTML" : "Text"}>
      <Part>
        {isOfHtml ? (
          <HtmlEditor
            value={content.body}
            onChange={(value) => onChange({ body: value })}
            problem={problem}
            {...more}
          />
        ) : (
          <BlocksEditor value={content.blocks || EMPTY} onChange={(value) => onChange({ blocks: value })} {...more} />
        )}
      </Part>
      {!more.readOnly && (
        <div className="actions">
          <Act title={other} note={words} act={change} />
        </div>
      )}
    </section>
  );
}

const TO_HTML = [
  "You get the HTML of the blocks, and edit it yourself from then on. The blocks stay under “Versions”, where you can restore them.",
  "Write HTML",
] as const;
const TO_BLOCKS = [
  "The text, links and images of the HTML become blocks; its layout and styles do not. The HTML stays under “Versions”, where you can restore it.",
  "Write with blocks",
] as const;
