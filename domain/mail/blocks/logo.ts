import { LOGO_WIDTH } from "../../../lib/mail-style.ts";
import type { Brand } from "../../teams/brand.ts";
import type { Block, BlockDocument } from "./schema.ts";

/** The logo with which a mail begins; none where the brand has none. */
export const logoBlocks = ({ logoUrl: src, teamName: alt }: Pick<Brand, "logoUrl" | "teamName">): Block[] =>
  src ? [{ type: "image", attrs: { src, alt, width: LOGO_WIDTH, align: "left" } }] : [];

/** A mail of the service's own, as the team begins to write it. */
export const withLogo = (blocks: BlockDocument, brand: Brand): BlockDocument => ({
  ...blocks,
  content: [...logoBlocks(brand), ...blocks.content],
});
