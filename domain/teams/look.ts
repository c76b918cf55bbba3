import { sql } from "kysely";
import type { Font, Language } from "../../db/entities/team.ts";

/** How pages and confirmation mails for a team's recipients look: a part of its brand. */
export interface Look {
  teamName: string;
  language: Language;
  logoUrl: string | null;
  accentColor: string;
  font: Font;
}

/** The team to which a link in a mail leads. */
export type LinkTeam = Look & { teamId: string };

/** SQL: of a team `t`. */
export const LOOK = sql`t.name as "teamName", t.language, t.logo_url as "logoUrl", t.accent_color as "accentColor", t.font`;

export const FONT_FAMILIES: Readonly<Record<Font, string>> = {
  sans: "system-ui,Helvetica,Arial,sans-serif",
  serif: "Georgia,Times,serif",
  mono: "ui-monospace,Menlo,Consolas,monospace",
};
