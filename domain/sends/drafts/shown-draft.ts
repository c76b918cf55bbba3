import { sql } from "kysely";
import type { FieldValues } from "../../../db/entities/contact.ts";
import { type EntityManager, forTenant, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { lookupAddress } from "../../address.ts";
import { segmentContacts } from "../../audience/segments/segments.ts";
import { ApiError } from "../../errors.ts";
import { type ContentWarning, MAX_BYTES_SHOWN, MAX_SUBJECT_SHOWN } from "../../mail/content-warnings.ts";
import { examineContent, showInThread } from "../../mail/examination.ts";
import type { ShownMessage } from "../../mail/message.ts";
import { SAMPLE } from "../../mail/template.ts";
import { type ContentField, describeProblem, TemplateError } from "../../mail/template-problem.ts";
import type { SendResource } from "../resource.ts";
import { type Draft, readDraft } from "./draft.ts";
import { refuseCrowd, templateRefusal } from "./drafts.ts";
import { planMembers } from "./members.ts";

/** A draft as one person would see its mail. */
export interface ShownDraft extends ShownMessage {
  from: { name: string | null; address: string } | null;
  to: ShownPerson;
  /** No person is targeted yet: the values are made up. */
  isSample: boolean;
  /** For which the draft is refused at its send-preview. */
  problems: { field: "subject" | "body"; message: string }[];
  /** With which it is sent all the same. */
  warnings: DraftWarning[];
}

export interface DraftWarning {
  kind: ContentWarning["kind"] | "no_fallback";
  message: string;
}

interface ShownPerson {
  email: string;
  firstName: string | null;
  lastName: string | null;
  listName: string | null;
  fields: FieldValues | null;
}

/** The hosts do not exist: a press on a link changes nothing. */
const LINKS = { unsubscribe_url: "https://unsubscribe.invalid/", tracking_url: "https://tracking.invalid/" };

/**
 * Fills the mail of a draft, or of what was one, with the values of a person.
 * @param email of a subscriber, or of a contact for a campaign; the first that it targets unless given
 * @param countPeople also those who lack the value of a merge tag
 * @throws {ApiError} `not_found` for the draft, and naming `person`; `validation_failed` for a template that cannot be used;
 *   `filter_unsupported`; `rate_limit_exceeded`
 */
export async function showDraft(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  email: string | undefined,
  countPeople = false,
): Promise<ShownDraft> {
  const draft = await readDraft(em, tenant, resource, { lock: false });
  const person = await (resource.type === "newsletter" ? findSubscriber : findContact)(em, draft, email);
  if (!person && email !== undefined) {
    throw new ApiError("not_found", "No person of this team has that address.", { param: "person" });
  }
  const to = person ?? samplePerson(draft);
  const content = { subject: draft.subject ?? "", html: draft.body ?? "" };
  refuseCrowd(tenant.teamId);
  const values = {
    ...{ email: to.email, first_name: to.firstName, last_name: to.lastName, list_name: to.listName },
    ...{ fields: to.fields ?? undefined, ...LINKS },
  };
  const { warnings, bareTags, ...shown } = await showInThread(tenant.teamId, content, values).catch(
    (error: unknown) => {
      throw error instanceof TemplateError ? templateRefusal(error.problem, "html") : error;
    },
  );
  const problems = await examineContent(tenant.teamId, content, draft.fieldNames);
  return {
    ...shown,
    ...{ to, isSample: !person, from: await readSender(em, draft) },
    problems: problems.map((problem) => ({ field: partOf(problem.field), message: describeProblem(problem) })),
    warnings: [...(countPeople ? await warnOfGaps(em, draft, bareTags) : []), ...warnings.map(inWords)],
  };
}

/** Of each tag that prints nothing for some of the people who would be mailed. */
async function warnOfGaps(em: EntityManager, draft: Draft, tags: readonly string[]): Promise<DraftWarning[]> {
  if (tags.length === 0) return [];
  const printedBy = (tag: string) => (tag.startsWith("fields.") ? sql`fields ->> ${tag.slice(7)}` : sql.ref(tag));
  const gaps = tags.map((tag) => sql`count(*) filter (where coalesce(${printedBy(tag)}, '') = '')`);
  const { rows } = await sql<{ people: number; gaps: number[] }>`
    select count(*)::int as people, array[${sql.join(gaps)}]::int[] as gaps
    from (${await planMembers(em, draft)}) members where permitted and not suppressed`.execute(kysely(em));
  const [{ people, gaps: counts } = { people: 0, gaps: [] }] = rows;
  return tags.flatMap((tag, i) => {
    const count = counts[i] ?? 0;
    const message = `${count} of ${people} people have no value for {{ ${tag} }}, and it has no fallback.`;
    return count > 0 ? { kind: "no_fallback" as const, message } : [];
  });
}

const times = (count: number, one: string) => (count === 1 ? `One ${one}` : `${count} ${one}s`);
const SENTENCES: Record<ContentWarning["kind"], (count: number) => string> = {
  image_without_text: (count) => `${times(count, "image")} without an alternative text.`,
  empty_link: (count) => `${times(count, "link")} without an address.`,
  relative_link: (count) => `${times(count, "link")} without https:// leading nowhere from a mail.`,
  insecure_link: (count) => `${times(count, "link")} with http: in place of https:.`,
  bare_address: (count) => `${times(count, "web address")} in the text without a link.`,
  long_subject: (count) => `The subject has ${count} characters; phones cut it after about ${MAX_SUBJECT_SHOWN}.`,
  large: (count) => `The HTML has ${count} bytes; Gmail hides what follows the first ${MAX_BYTES_SHOWN}.`,
};
const inWords = ({ kind, count }: ContentWarning): DraftWarning => ({ kind, message: SENTENCES[kind](count) });

const partOf = (field: ContentField) => (field === "html" ? "body" : "subject");

function samplePerson({ fieldNames }: Draft): ShownPerson {
  const { email, first_name: firstName, last_name: lastName, list_name: listName } = SAMPLE;
  return {
    email,
    firstName,
    lastName,
    listName,
    fields: Object.fromEntries(fieldNames.map((name) => [name, "Sample"])),
  };
}

/** With the list for which they would get the mail, or else the first that is targeted. */
async function findSubscriber(em: EntityManager, draft: Draft, email: string | undefined) {
  const tenant = { teamId: draft.teamId, environment: draft.environment };
  const targets = [...draft.targetIds];
  const columns = sql`coalesce(s.email_spelling, s.email) as email, s.first_name as "firstName",
    s.last_name as "lastName", l.name as "listName", null::jsonb as fields`;
  const query =
    email === undefined
      ? sql`select ${columns} from subscriptions m
          join subscribers s on s.id = m.subscriber_id join lists l on l.id = m.list_id
          where ${ofTenant(tenant, "m")} and m.list_id = any(${targets}) and m.status = 'CONFIRMED' limit 1`
      : sql`select ${columns} from subscribers s
          left join subscriptions m on ${ofTenant(tenant, "m")} and m.subscriber_id = s.id
            and m.list_id = any(${targets}) and m.status = 'CONFIRMED'
          left join lists l on ${ofTenant(tenant, "l")} and l.id = coalesce(m.list_id, (${targets}::text[])[1])
          where ${ofTenant(tenant, "s")} and s.email = ${lookupAddress(email)} order by m.list_id limit 1`;
  const { rows } = await query.execute(kysely(em));
  return rows[0] as ShownPerson | undefined;
}

async function findContact(em: EntityManager, { targetIds: [segmentId], ...draft }: Draft, email: string | undefined) {
  const tenant = { teamId: draft.teamId, environment: draft.environment };
  if (email === undefined && segmentId === undefined) return undefined;
  const contacts =
    email === undefined
      ? sql`(${await segmentContacts(forTenant(em, tenant), tenant, segmentId ?? "")}) c where c.email_status = 'ACTIVE'`
      : sql`contacts c where ${ofTenant(tenant, "c")} and c.email = ${lookupAddress(email)}`;
  const { rows } = await sql<ShownPerson>`select coalesce(c.email_spelling, c.email) as email,
    c.first_name as "firstName", c.last_name as "lastName", null as "listName", c.fields from ${contacts} limit 1`.execute(
    kysely(em),
  );
  return rows[0];
}

/** Of a campaign, that of its first account. */
async function readSender(em: EntityManager, draft: Draft): Promise<ShownDraft["from"]> {
  const [address] = draft.fromAddresses;
  if (address === undefined) return null;
  const [account] = draft.accounts;
  if (draft.fromName !== null || !account) return { name: draft.fromName, address };
  const { display_name: name } = await kysely(em)
    .selectFrom("email_accounts")
    .select("display_name")
    .where("id", "=", account.id)
    .where(ofTenant(draft))
    .executeTakeFirstOrThrow();
  return { name, address };
}
