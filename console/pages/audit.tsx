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
  "Entries are kept for 400 days. Saves of a text, and changes of people by an API key, stand here once a day. The team's settings and members are under Live.";

function whoOf({ way, by, credential }: Entry): string {
  if (way === "COMMAND") return WAYS.COMMAND;
  if (way === "API_KEY") return `API key ${by ?? ""}`;
  return `${by}${credential ? ` through ${credential.replace("oauth_", "")}` : ""}`;
}

function What({ act, count, object_id: id, object_name: name }: Entry) {
  const { base } = useWorkspace();
  const page = act.startsWith("sequence") ? "sequences" : PAGES[id?.split("_")[0] ?? ""];
  const text = <bdi>{name ?? (id?.startsWith("team_") ? "of the team" : id)}</bdi>;
  return (
    <>
      {wordsOf(act)} {page && name !== null ? <Link to={`${base}/${page}/${id}`}>{text}</Link> : text}
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
        <ChoiceFilter name="way" label="By" any="All" choices={WAYS} />
        <ChoiceFilter name="kind" label="About" any="All" choices={KINDS} />
        <ChoiceFilter name="days" label="When" any="All" choices={DAYS} />
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
          { name: "When", cell: ({ at }) => <When at={at} /> },
          { name: "Who", cell: whoOf },
          { name: "What", cell: (entry) => <What {...entry} /> },
        ]}
        empty="No entries match."
      />
    </>
  );
}
