import { useState } from "react";
import type { Client } from "../api.ts";
import { Act } from "../parts/act.tsx";
import { useLists } from "../parts/audience/people.tsx";
import { useSecret } from "../parts/dialog.tsx";
import { ChoiceFilter, useFilters } from "../parts/filters.tsx";
import { Field, type FormProps, Inputs, Refused, Ticks, textsOf } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { PageHead, State, When } from "../parts/page.tsx";
import { All } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

const GRACE = { "0": "It stops at once", "1": "1 hour", "24": "1 day", "168": "7 days" };
const REVOKES =
  "Programs that use it lose access at once, and its unfinished sends are stopped. This cannot be undone.";
const REVOKES_CONSOLE =
  "Unfinished sends that were confirmed with it are stopped. Its member is an admin and can renew it: to keep them from sending, change their role.";

const STATES = {
  works: ["active", "good"],
  left: ["inactive: its member has left", "wrong"],
  revoked: ["revoked", "muted"],
  expired: ["expired", "muted"],
} as const;

/** The API keys of a team in one environment. Members who are no admins see the service's refusal. */
export function Page() {
  const { client, environment } = useWorkspace();
  const mayManage = useRole("ADMIN");
  const [{ state }] = useFilters();
  const secret = useSecret("Your new key", "Copy it now and keep it as safe as a password: it is not shown again.");
  const shownState = state === "ended" ? "ended" : "working";
  const { rotateKey, revokeKey, changeCap, renewConsoleKey } = client.app.team;
  const read = () => client.app.team.keys.query({ query: { state: shownState } });
  const { keys, own_console_key } = useData(["keys", shownState], read);
  const lists = useLists();
  const nameOfList = (id: string) =>
    lists.find((list) => list.id === id)?.name ?? "no list: the key's list was deleted";
  return (
    <>
      <PageHead title="Keys">{mayManage && <Mint lists={lists} onMinted={secret.show} />}</PageHead>
      <p>
        A key lets your program use the API on your behalf, for this team.
        {environment === "test" && " A test key sends nothing."}
      </p>
      {own_console_key === "revoked" && (
        <div className="notice actions">
          <span>Your key for sending from the console was revoked: you cannot send until you renew it.</span>
          <Act
            title="Renew"
            note="You can send again. Emails you sent today count towards the new key's limit."
            act={() => renewConsoleKey.mutate({})}
          />
        </div>
      )}
      <All
        caption="Keys"
        rows={keys}
        search={["Name, key or member", ({ name, key_id, member }) => `${name} ${key_id} ${member.name}`]}
        keyOf={({ id }) => id}
        empty="No such keys. Create one for each program that uses the API, so that you can revoke each on its own."
        columns={[
          {
            name: "Name",
            cell: ({ name, key_id, is_of_console }) => (
              <>
                {name}
                {is_of_console ? (
                  <p className="muted">For sending from the console</p>
                ) : (
                  <p>
                    <code>{key_id}_…</code>
                  </p>
                )}
              </>
            ),
          },
          { name: "Member", cell: ({ member, is_yours }) => (is_yours ? `${member.name} (you)` : member.name) },
          {
            name: "Status",
            cell: ({ state, expires_at, member }) => (
              <>
                <State of={STATES} is={member.has_left ? "left" : state} />
                {state === "works" && expires_at && (
                  <p className="muted">
                    until <When at={expires_at} />
                  </p>
                )}
              </>
            ),
          },
          {
            name: "Permissions",
            cell: ({ scopes, requires_approval, for_list_id }) => (
              <>
                <details>
                  <summary>{scopes.length === 1 ? scopes[0] : `${scopes.length} scopes`}</summary>
                  {scopes.join(", ")}
                  {requires_approval && <p>Each send needs approval.</p>}
                </details>
                {for_list_id && <p className="muted">Its newsletters go to {nameOfList(for_list_id)}</p>}
              </>
            ),
          },
          {
            name: "Sends from",
            cell: ({ scopes, send_domains }) => (sends(scopes) ? send_domains.join(", ") || "no domain yet" : "–"),
          },
          {
            name: "Emails per day",
            isNumber: true,
            cell: ({ scopes, daily_send_cap }) => (sends(scopes) ? daily_send_cap.toLocaleString() : "–"),
          },
          {
            name: "Actions",
            cell: ({ id, name, state, scopes, daily_send_cap, is_yours, is_of_console }) =>
              state === "works" && (
                <More of={name}>
                  {is_yours && !is_of_console && (
                    <Act
                      title={`Rotate ${name}`}
                      short="Rotate"
                      note="You get a new key with the same permissions. Put it into your program while the old one still works."
                      inputs={[["grace", "How long the old key still works", { choices: GRACE }]]}
                      values={{ grace: 24 }}
                      act={async ({ grace }) => {
                        const body = { key_id: id, grace_hours: Number(grace) };
                        secret.show((await rotateKey.mutate({ body })).data.secret);
                      }}
                    />
                  )}
                  {sends(scopes) && (
                    <Act
                      title={`Change limit of ${name}`}
                      short="Change limit"
                      submit="Save"
                      inputs={[["daily_send_cap", "Daily email limit", CAP]]}
                      values={{ daily_send_cap }}
                      act={(given) =>
                        changeCap.mutate({ body: { key_id: id, daily_send_cap: Number(given["daily_send_cap"]) } })
                      }
                    />
                  )}
                  <Act
                    title={`Revoke ${name}`}
                    short="Revoke"
                    kind="danger"
                    note={is_of_console ? REVOKES_CONSOLE : REVOKES}
                    act={() => revokeKey.mutate({ body: { key_id: id } })}
                  />
                </More>
              ),
          },
        ]}
      >
        <ChoiceFilter name="state" label="Status" any="Active keys" choices={{ ended: "Revoked and expired keys" }} />
      </All>
      {secret.dialog}
    </>
  );
}

const DOMAINS_HINT = "The domains of your from addresses, separated by commas: example.com, example.org";
const CAP = {
  type: "number",
  min: 0,
  max: 2_147_483_647,
  hint: "A day begins at midnight UTC.",
  required: true,
} as const;
const SEND_INPUTS = [
  ["send_domains", "Sending domains", { hint: DOMAINS_HINT, required: true }],
  ["daily_send_cap", "Daily email limit", CAP],
] as const;
const EXPIRES = { type: "datetime-local", hint: "Leave empty for a key that does not expire." } as const;

const FOR_LIST_HINT = "Every newsletter created with the key goes to this list.";

function Mint({ lists, onMinted }: { lists: ReturnType<typeof useLists>; onMinted: (secret: string) => void }) {
  const { client } = useWorkspace();
  const [scopes, setScopes] = useState<Scope[]>([]);
  const mint: FormProps["onSubmit"] = async (values, context) => {
    const { name = "", send_domains = "", for_list_id, daily_send_cap, expires_at } = values;
    const body = {
      name,
      scopes,
      send_domains: send_domains.split(/[\s,]+/).filter((domain) => domain !== ""),
      ...(daily_send_cap && { daily_send_cap: Number(daily_send_cap) }),
      for_list_id: for_list_id || null,
      expires_at: expires_at ? new Date(expires_at).toISOString() : null,
    };
    const { data } = await client.app.team.mintKey.mutate({ body }, { context });
    onMinted(data.secret);
  };
  const names = Object.fromEntries(lists.map(({ id, name }) => [id, name]));
  const choices = { "": "None: members choose lists for each newsletter", ...names };
  const forList = ["for_list_id", "List for its newsletters", { choices, hint: FOR_LIST_HINT }] as const;
  return (
    <Act
      title="New key"
      submit="Create key"
      kind="primary"
      inputs={[["name", "Name", { hint: "The program that uses it.", required: true, maxLength: 200 }]]}
      isDisabled={scopes.length === 0}
      onOpen={() => setScopes([])}
      act={mint}
    >
      <ScopeChoice chosen={scopes} onChange={setScopes} />
      <Inputs
        inputs={[
          ...(scopes.includes("newsletters:write") ? [forList] : []),
          ...(sends(scopes) ? SEND_INPUTS : []),
          ["expires_at", "Expires", EXPIRES],
        ]}
        values={{ daily_send_cap: 50_000 }}
      />
    </Act>
  );
}

type Minting = Parameters<Client["app"]["team"]["mintKey"]["mutate"]>[0];
type Scope = Minting["body"]["scopes"][number];

/** The acts that each scope allows, in words. */
const EXPLAINED: Record<Scope, string> = {
  "lists:read": "Read lists and who is on them",
  "lists:write": "Create and edit lists, add people to them and remove them",
  "subscribers:read": "Read subscribers",
  "subscribers:write": "Add, edit and delete subscribers",
  "contacts:read": "Read contacts and their fields",
  "contacts:write": "Add, edit and delete contacts",
  "newsletters:read": "Read newsletters and their reports",
  "newsletters:write": "Write and delete newsletter drafts",
  "newsletters:send": "Send newsletters",
  "campaigns:read": "Read campaigns and their reports",
  "campaigns:write": "Write and delete campaign drafts",
  "campaigns:send": "Send campaigns",
  "webhooks:read": "Read webhooks and their deliveries",
  "webhooks:write": "Create, edit and delete webhooks, and replay deliveries",
  "suppressions:read": "Read suppressed addresses",
  "suppressions:write": "Suppress addresses",
  "suppressions:delete": "Allow suppressed addresses to be emailed again",
  "accounts:read": "Read sending accounts",
  "analytics:read": "Read statistics on opens, clicks, bounces and complaints",
  "usage:read": "Read how much of each limit is used",
};
const ALL = Object.keys(EXPLAINED) as Scope[];
const SENDS: readonly Scope[] = ["newsletters:send", "campaigns:send"];

/** Scopes by what a key is for. */
const PURPOSES: Readonly<Record<string, readonly Scope[]>> = {
  "A sign-up form on a website": ["lists:read", "lists:write", "subscribers:read", "subscribers:write"],
  "A shop or CRM that manages contacts": ["contacts:read", "contacts:write"],
  "A program that writes drafts": ["newsletters:read", "newsletters:write", "campaigns:read", "campaigns:write"],
  "A program that sends": [
    ...(["lists:read", "newsletters:read", "newsletters:write", "campaigns:read", "campaigns:write"] as const),
    ...SENDS,
  ],
  "Reports and dashboards": ALL.filter((scope) => scope.endsWith(":read")),
  "Cleaning up suppressed addresses": ["suppressions:read", "suppressions:write", "suppressions:delete"],
};

const sends = (scopes: readonly string[]): boolean => SENDS.some((scope) => scopes.includes(scope));

/** A choice of scopes: by purpose, then one by one. The pair that no key may hold cannot be chosen. */
function ScopeChoice({ chosen, onChange }: { chosen: readonly Scope[]; onChange: (scopes: Scope[]) => void }) {
  const isForbidden = (scope: Scope) =>
    (SENDS.includes(scope) && chosen.includes("suppressions:delete")) ||
    (scope === "suppressions:delete" && sends(chosen));
  return (
    <>
      <Field
        label="What is the key for?"
        name="purpose"
        choices={{ "": "Something else: choose below", ...textsOf(Object.keys(PURPOSES)) }}
        onChange={(purpose) => onChange([...(PURPOSES[purpose] ?? [])])}
      />
      <fieldset name="scopes">
        <legend>Permissions</legend>
        <Ticks
          options={ALL.map((scope) => ({
            id: scope,
            name: (
              <>
                {EXPLAINED[scope]} <code className="muted">{scope}</code>
              </>
            ),
            isDisabled: isForbidden(scope),
          }))}
          chosen={chosen}
          onChange={(scopes) => onChange(scopes as Scope[])}
        />
        <p className="muted">
          No key may both send and lift suppressions: if it leaked, it could email people who had opted out. Create two
          keys.
        </p>
        <Refused name="scopes" />
      </fieldset>
    </>
  );
}
