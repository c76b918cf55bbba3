import { z } from "zod";
import { ENVIRONMENTS } from "../../../db/entities/shared.ts";
import { ApiKey, FONTS, LANGUAGES, Member, ROLES, Team, TRACKING_MODES } from "../../../db/entities/team.ts";
import {
  changeCap,
  keyState,
  lockKey,
  type MintedKey,
  mintKey,
  presentKeyId,
  revokeKey,
  rotateKey,
} from "../../../domain/access/keys.ts";
import { SCOPES } from "../../../domain/access/scopes.ts";
import { keyOfSessions } from "../../../domain/access/session-key.ts";
import { lookupAddress } from "../../../domain/address.ts";
import { MAX_NAME_LENGTH } from "../../../domain/audience/rules.ts";
import { ApiError } from "../../../domain/errors.ts";
import { imageUrl } from "../../../domain/mail/blocks/schema.ts";
import { changeMember, changeTeam, inviteMember } from "../../../domain/teams/teams.ts";
import type { RequestContext } from "../../context.ts";
import { address, name, oneLine } from "../../fields.ts";
import { idParam, idParamOf, router } from "../../rest/route.ts";
import { bodyOf, consoleMutation, consoleQuery, noInput } from "../procedure.ts";

/** Ended keys that the list shows, the newest first. */
const ENDED_KEYS = 200;

const memberId = idParamOf("member", "The id of the member.");
const keyId = idParamOf("apiKey", "The id of the key.");
const role = z.enum(ROLES);
const future = z.iso
  .datetime()
  .refine((text) => new Date(text) > new Date(), "must be in the future")
  .nullable();

const actorOf = ({ access, tenant }: RequestContext) => ({ teamId: tenant.teamId, role: access.role });

const members = consoleQuery({ role: "ADMIN", input: noInput }, async ({ ctx }) => {
  const { teamId } = ctx.tenant;
  const found = await ctx.em.find(Member, { teamId, removedAt: null }, { orderBy: { name: "asc", id: "asc" } });
  const keys: ApiKey[] = [];
  for (const environment of ENVIRONMENTS) keys.push(...(await ctx.em.find(ApiKey, { teamId, environment })));
  const worksFor = (id: string) =>
    keys.filter((key) => key.memberId === id && !key.forSessions && keyState(key) === "works").length;
  return found.map(({ id, email, name, role, createdAt }) => ({
    ...{ id, email, name, role, created_at: createdAt.toISOString() },
    is_you: id === ctx.access.caller.memberId,
    working_keys: worksFor(id),
  }));
});

const invite = consoleMutation(
  { role: "ADMIN", input: bodyOf(z.strictObject({ email: address, name, role })) },
  async ({ ctx, input: { body } }) => {
    const person = { ...body, email: lookupAddress(body.email) };
    const { id } = await inviteMember(ctx.em, actorOf(ctx), person);
    return { id };
  },
);

const changeRole = consoleMutation(
  { role: "ADMIN", input: bodyOf(z.strictObject({ member_id: memberId, role })) },
  async ({ ctx, input: { body } }) => {
    await changeMember(ctx.em, body.member_id, { role: body.role }, actorOf(ctx));
    return { id: body.member_id, role: body.role };
  },
);

const removeMember = consoleMutation(
  { role: "ADMIN", input: bodyOf(z.strictObject({ member_id: memberId })) },
  async ({ ctx, input: { body } }) => {
    await changeMember(ctx.em, body.member_id, { removedAt: new Date() }, actorOf(ctx));
    return { id: body.member_id, removed: true };
  },
);

const presentKey = (key: ApiKey) => ({
  id: key.id,
  key_id: presentKeyId(key.environment, key.publicId),
  name: key.name,
  state: keyState(key),
  scopes: key.grantedScopes,
  send_domains: key.sendDomains,
  daily_send_cap: key.dailySendCap,
  requires_approval: key.requiresApproval,
  for_list_id: key.forListId ?? null,
  expires_at: key.expiresAt?.toISOString() ?? null,
  created_at: key.createdAt.toISOString(),
  is_of_console: key.forSessions,
});

const presentMinted = ({ key, record }: MintedKey) => ({ id: record.id, secret: key });

const keys = consoleQuery(
  { role: "ADMIN", input: z.strictObject({ query: z.strictObject({ state: z.enum(["working", "ended"]) }) }) },
  async ({ ctx, input: { query } }) => {
    const { teamId } = ctx.tenant;
    const [all, people] = [
      await ctx.em.find(ApiKey, ctx.tenant, { orderBy: { id: "desc" } }),
      await ctx.em.find(Member, { teamId }),
    ];
    const own = all.find((key) => key.forSessions && key.memberId === ctx.access.caller.memberId);
    const shown = all.filter((key) => (keyState(key) === "works") === (query.state === "working"));
    return {
      /** Of the key by which this member sends here; null before its first use. */
      own_console_key: own ? keyState(own) : null,
      keys: shown.slice(0, query.state === "ended" ? ENDED_KEYS : shown.length).map((key) => {
        const member = people.find(({ id }) => id === key.memberId);
        const shownMember = { name: member?.name ?? "", has_left: member?.removedAt !== null };
        return { ...presentKey(key), member: shownMember, is_yours: key.memberId === ctx.access.caller.memberId };
      }),
    };
  },
);

const mint = consoleMutation(
  {
    role: "ADMIN",
    input: bodyOf(
      z.strictObject({
        name,
        scopes: z.array(z.enum(SCOPES)).min(1),
        send_domains: z.array(z.string()).default([]),
        daily_send_cap: z.int().optional(),
        for_list_id: idParam.nullable().default(null),
        expires_at: future.default(null),
      }),
    ),
    secret: true,
  },
  async ({ ctx, input: { body } }) => {
    const grant = {
      ...ctx.tenant,
      ...{ memberId: ctx.access.caller.memberId, name: body.name, scopes: body.scopes, sendDomains: body.send_domains },
      ...(body.daily_send_cap !== undefined && { dailySendCap: body.daily_send_cap }),
      forListId: body.for_list_id,
      expiresAt: body.expires_at === null ? null : new Date(body.expires_at),
    };
    return presentMinted(await mintKey(ctx.em, ctx.vault, grant, ctx.env.MAX_API_KEYS));
  },
);

const rotate = consoleMutation(
  {
    role: "ADMIN",
    input: bodyOf(z.strictObject({ key_id: keyId, grace_hours: z.int().min(0).max(8_760) })),
    secret: true,
  },
  async ({ ctx, input: { body } }) => {
    const name = { ...ctx.tenant, key: body.key_id };
    const { memberId } = await lockKey(ctx.em, name);
    if (memberId !== ctx.access.caller.memberId) {
      throw new ApiError("role_insufficient", "The new key would act for another member; revoke this one instead.");
    }
    return presentMinted(await rotateKey(ctx.em, ctx.vault, name, ctx.env.MAX_API_KEYS, body.grace_hours));
  },
);

const revoke = consoleMutation(
  { role: "ADMIN", input: bodyOf(z.strictObject({ key_id: keyId })) },
  async ({ ctx, input: { body } }) => {
    await revokeKey(ctx.em, { ...ctx.tenant, key: body.key_id });
    return { id: body.key_id, revoked: true };
  },
);

const changeCapRoute = consoleMutation(
  { role: "ADMIN", input: bodyOf(z.strictObject({ key_id: keyId, daily_send_cap: z.int() })) },
  async ({ ctx, input: { body } }) =>
    presentKey(await changeCap(ctx.em, { ...ctx.tenant, key: body.key_id }, body.daily_send_cap)),
);

const renewConsoleKey = consoleMutation({ role: "ADMIN", input: noInput }, async ({ ctx }) => {
  const key = await keyOfSessions(ctx.em, ctx.vault, ctx.tenant, ctx.access.caller.memberId, true);
  return presentKey(key);
});

const presentSettings = ({ name, timeZone, tracking, plan, updatedAt }: Team) => ({
  ...{ name, time_zone: timeZone, tracking, plan },
  updated_at: updatedAt.toISOString(),
});

const settings = consoleQuery({ role: "VIEWER", input: noInput }, async ({ ctx }) =>
  presentSettings(await ctx.em.findOneOrFail(Team, { id: ctx.tenant.teamId })),
);

const changeSettings = consoleMutation(
  {
    role: "ADMIN",
    // Another time zone moves all who wait in sequences.
    isPatient: true,
    input: bodyOf(
      z.strictObject({
        name: name.optional(),
        time_zone: z.string().optional(),
        tracking: z.enum(TRACKING_MODES).optional(),
      }),
    ),
  },
  async ({ ctx, input: { body } }) => {
    const patch = { name: body.name, timeZone: body.time_zone, tracking: body.tracking };
    return presentSettings(await ctx.em.refreshOrFail(await changeTeam(ctx.em, ctx.tenant.teamId, patch)));
  },
);

const MAX_LINES = 1_000;

const color = z.string().regex(/^#[0-9a-f]{6}$/, "must be a colour such as #0b57d0");
/** Those who read it look for words, and a footer that a mail has already is found by them. */
const lines = z.string().trim().max(MAX_LINES).regex(/\p{L}/u, "must hold a letter");

const presentBrand = ({ language, font, ...team }: Team) => ({
  ...{ language, font, logo_url: team.logoUrl ?? null },
  ...{ accent_color: team.accentColor, background_color: team.backgroundColor },
  ...{ sender_name: team.senderName ?? null, sender_email: team.senderEmail ?? null },
  ...{ mail_footer: team.mailFooter ?? null, postal_address: team.postalAddress ?? null },
  updated_at: team.updatedAt.toISOString(),
});

const brand = consoleQuery({ role: "VIEWER", input: noInput }, async ({ ctx }) =>
  presentBrand(await ctx.em.findOneOrFail(Team, { id: ctx.tenant.teamId })),
);

const changeBrand = consoleMutation(
  {
    role: "ADMIN",
    input: bodyOf(
      z
        .strictObject({
          ...{ language: z.enum(LANGUAGES), font: z.enum(FONTS), accent_color: color, background_color: color },
          ...{ logo_url: imageUrl.nullable(), mail_footer: lines.nullable(), postal_address: lines.nullable() },
          ...{ sender_name: oneLine(MAX_NAME_LENGTH).nullable(), sender_email: address.nullable() },
        })
        .partial(),
    ),
  },
  async ({ ctx, input: { body } }) => {
    // As all pages of such a deployment are.
    if (body.logo_url && /^http:/i.test(body.logo_url) && !body.logo_url.startsWith(`${ctx.env.PUBLIC_URL}/i/`)) {
      throw new ApiError("validation_failed", "The logo must begin with https:.", { param: "logo_url" });
    }
    const patch = {
      ...{ language: body.language, font: body.font, logoUrl: body.logo_url },
      ...{ accentColor: body.accent_color, backgroundColor: body.background_color },
      ...{ senderName: body.sender_name, senderEmail: body.sender_email },
      ...{ mailFooter: body.mail_footer, postalAddress: body.postal_address },
    };
    return presentBrand(await ctx.em.refreshOrFail(await changeTeam(ctx.em, ctx.tenant.teamId, patch)));
  },
);

export const teamRouter = router({
  ...{ members, invite, changeRole, removeMember },
  ...{ keys, mintKey: mint, rotateKey: rotate, revokeKey: revoke, changeCap: changeCapRoute, renewConsoleKey },
  ...{ settings, changeSettings, brand, changeBrand },
});
