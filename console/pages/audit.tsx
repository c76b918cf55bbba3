import { Link } from "@tanstack/react-router";
import type { Client, DataOf } from "../api.ts";
import { wordsOf } from "../parts/audit-words.ts";
import { SaveCsv } from "../parts/export.tsx";
import { ChoiceFilter, choiceOf, useFilters } from "../parts/filters.tsx";
import { PageHead, When } from "../parts/page.tsx";
import { List } from "../parts/table.tsx";
import { useData, useWorkspace } from "../session.tsx";

type Entry = DataOf<Client["app"]["audit"]["page"]["query"]>["entries"][number];

const WAYS = {
  CONSOLE: "Member, in the console",
  API_KEY: "API key",
  OAUTH_CLIENT: "OAuth client",
  COMMAND: "Operator of the service",
} as const;
/** By the prefixes of ids: a sequence is a campaign by its id. */
const KINDS = {
  ...{ nl: "Newsletters", cmp: "Campaigns and sequences", tpl: "Templates", list: "Lists", seg: "Segments" },
  ...{ form: "Forms", sub: "Subscribers", con: "Contacts", supp: "Suppressions", imp: "Imports", img: "Images" },
  ...{
    acct: "Accounts",
    dkim: "Domains",
    rps: "Providers",
    whk: "Webhooks",
    key: "Keys",
    preq: "Personal data",
    mbr: "Members",
    team: "Team",
  },
} as const;
const DAYS = { 1: "Last 24 hours", 7: "Last 7 days", 30: "Last 30 days", 90: "Last 90 days" } as const;
/** Of records that have a page of their own. */
const PAGES: Readonly<Record<string, string>> = {
  ...{ nl: "newsletters", cmp: "campaigns", list: "lists", seg: "segments", imp: "imports", acct: "accounts" },
  whk: "webhooks",
};
const NOTE =
  "Entries are kept for 400 days. Saves of a text, and changes of people by an API key, appear once a day. The team's settings and members are under Live.";

function whoOf({ way, by, credential }: Entry): string {
  if (way === "COMMAND") return "An operator of the service";
  if (way === "API_KEY") return `The API key “${by ?? credential}”`;
  return `${by}${credential ? ` through ${credential.replace("oauth_", "")}` : ""}`;
}

/** "Ada deleted the newsletter “May”", and the way to a record that may still be there. */
function Sentence({ of: entry }: { of: Entry }) {
  const { base } = useWorkspace();
  const { act, count, object_id: id, object_name: name } = entry;
  const prefix = id?.split("_")[0] ?? "";
  const isOfSequence = act.startsWith("sequence");
  const page = isOfSequence ? "sequences" : PAGES[prefix];
  const many: string = isOfSequence ? "Sequences" : (KINDS[prefix as keyof typeof KINDS] ?? "");
  const kind = many.toLowerCase().replace(/s( and .*)?$/, "");
  const text = <bdi>{name === null ? prefix !== "team" && id : `“${name}”`}</bdi>;
  const isLink = page && name !== null && !/delete|remove/.test(act);
  return (
    <>
      <bdi>{whoOf(entry)}</bdi> {wordsOf(act, kind)} {isLink ? <Link to={`${base}/${page}/${id}`}>{text}</Link> : text}
      {count !== null && count > 1 && `, ${count.toLocaleString()} records`}
    </>
  );
}

/** The acts of members, programs and operators. */
export function Page() {
  const { client, base } = useWorkspace();
  const [{ member, way, kind, days }] = useFilters();
  const members = useData(["audit", "members"], ({ app }) => app.audit.members.query({}));
  const people = Object.fromEntries(members.map(({ id, name }) => [id, name]));
  const query = {
    member_id: choiceOf(people, member),
    way: choiceOf(WAYS, way),
    kind: choiceOf(KINDS, kind),
    days: days && days in DAYS ? Number(days) : undefined,
  };
  const { page, export: csv } = client.app.audit;
  return (
    <>
      <PageHead title="Audit log">
        <SaveCsv name="audit-log.csv" least="VIEWER" read={(after) => csv.query({ query: { ...query, after } })} />
      </PageHead>
      <p className="muted">{NOTE}</p>
      <div className="filters">
        <ChoiceFilter name="member" label="Person" any="All" choices={people} />
        <ChoiceFilter name="way" label="How" any="All" choices={WAYS} />
        <ChoiceFilter name="kind" label="About" any="All" choices={KINDS} />
        <ChoiceFilter name="days" label="Time" any="All" choices={DAYS} />
      </div>
      <List
        caption="Audit log"
        queryKey={[base, "audit", query]}
        read={async (after) => {
          const { data } = await page.query({ query: { ...query, after } });
          return { data: data.entries, meta: data };
        }}
        keyOf={({ id }) => id}
        columns={[
          { name: "Event", cell: (entry) => <Sentence of={entry} /> },
          { name: "Time", cell: ({ at }) => <When at={at} /> },
        ]}
        empty="No entries match."
      />
    </>
  );
}
