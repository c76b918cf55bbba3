import type { Client } from "../api.ts";
import { Field, Refused, Ticks, textsOf } from "./form.tsx";

type Minting = Parameters<Client["app"]["team"]["mintKey"]["mutate"]>[0];
export type Scope = Minting["body"]["scopes"][number];

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

export const sends = (scopes: readonly string[]): boolean => SENDS.some((scope) => scopes.includes(scope));

interface ScopesProps {
  chosen: readonly Scope[];
  onChange: (scopes: Scope[]) => void;
}

/** A choice of scopes: by purpose, then one by one. The pair that no key may hold cannot be chosen. */
export function ScopeChoice({ chosen, onChange }: ScopesProps) {
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
