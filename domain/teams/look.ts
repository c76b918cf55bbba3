import { sql } from "kysely";
import type { Brand } from "./brand.ts";

/** How pages and confirmation mails for a team's recipients look: a part of its brand. */
export type Look = Pick<Brand, "teamName" | "language" | "logoUrl" | "accentColor" | "font">;

/** The team to which a link in a mail leads. */
export type LinkTeam = Look & { teamId: string };

/** SQL: of a team `t`. */
export const LOOK = sql`t.name as "teamName", t.language, t.logo_url as "logoUrl", t.accent_color as "accentColor", t.font`;
