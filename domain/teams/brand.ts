import { type RawBuilder, sql } from "kysely";
import type { Font, MailFooter, Team } from "../../db/entities/team.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";

/** Colours are `#rrggbb`. */
export type BrandFields = Pick<
  Team,
  | ("language" | "accentColor" | "backgroundColor" | "font" | "mailFooter" | "postalAddress" | "logoUrl")
  | ("senderName" | "senderEmail")
>;

/** A team's look and words. */
export type Brand = Omit<BrandFields, "senderName" | "senderEmail" | "font"> & {
  /** Under which it writes: see `SENDER`. */
  teamName: string;
  font: Font;
};

/** SQL: the name under which a team `t` writes to its recipients: the one of the brand, or else its own. */
export const SENDER = sql<string>`coalesce(nullif(btrim(t.sender_name), ''), t.name)`;

export const brandOf = (em: EntityManager, teamId: string): Promise<Brand> =>
  kysely(em)
    .selectFrom("teams as t")
    .where("id", "=", teamId)
    .select(SENDER.as("teamName"))
    .select(["language", "font", "logo_url as logoUrl", "accent_color as accentColor"])
    .select(["background_color as backgroundColor", "mail_footer as mailFooter", "postal_address as postalAddress"])
    .executeTakeFirstOrThrow();

/** How pages and confirmation mails for a team's recipients look. */
export type Look = Pick<Brand, "teamName" | "language" | "logoUrl" | "accentColor" | "backgroundColor" | "font">;

/** The team to which a link in a mail leads. */
export type LinkTeam = Look & { teamId: string };

/** SQL: of a team `t`. */
export const LOOK = sql`${SENDER} as "teamName", t.language, t.logo_url as "logoUrl", t.accent_color as "accentColor",
  t.background_color as "backgroundColor", t.font`;

/** SQL: what stands below each mail of a team `t`. */
export const footerOf = (isToList = sql`false`, isOnWeb = sql`false`): RawBuilder<MailFooter> =>
  sql`jsonb_build_object('language', t.language, 'mailFooter', t.mail_footer, 'postalAddress', t.postal_address,
    'isToList', ${isToList}, 'isOnWeb', ${isOnWeb})`;
