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

/** Relative luminance of `#rrggbb`: WCAG 2.2. */
function luminance(color: string): number {
  const [red = 0, green = 0, blue = 0] = (color.match(/[\da-f]{2}/gi) ?? []).map((pair) => {
    const value = Number.parseInt(pair, 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Of two colours, 1 to 21: WCAG 2.2. */
export function contrast(one: string, other: string): number {
  const [a, b] = [luminance(one), luminance(other)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

/** White or black, of which one is legible on any colour. */
export const inkOn = (background: string): string => (contrast(background, "#ffffff") >= 4.5 ? "#ffffff" : "#000000");
