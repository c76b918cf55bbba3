import type { Client } from "../api.ts";
import { Field, Refused, Ticks, textsOf } from "./form.tsx";

type Minting = Parameters<Client["app"]["team"]["mintKey"]["mutate"]>[0];
export type Scope = Minting["body"]["scopes"][number];

/** The acts that each scope allows, in words. */
const EXPLAINED: Record<Scope, string> = {
  "lists:read": "Read lists and who is on them",
  "lists:write": "Make and change lists, put people on them and take them off",
  "subscribers:read": "Read subscribers",
  "subscribers:write": "Add, change and delete subscribers",
  "contacts:read": "Read contacts and their fields",
  "contacts:write": "Add, change and delete contacts",
  "newsletters:read": "Read newsletters and their reports",
  "newsletters:write": "Write and delete drafts of newsletters",
  "newsletters:send": "Send newsletters",
  "campaigns:read": "Read campaigns and their reports",
  "campaigns:write": "Write and delete drafts of campaigns",
  "campaigns:send": "Send campaigns",
  "webhooks:read": "Read webhooks and their deliveries",
  "webhooks:write": "Make, change and delete webhooks, and repeat deliveries",
  "suppressions:read": "Read the list of addresses that get no mail",
  "suppressions:write": "Add addresses that get no mail",
  "suppressions:delete": "Let such addresses get mail again",
  "accounts:read": "Read the accounts that send",
  "analytics:read": "Read figures of opens, clicks, bounces and complaints",
  "usage:read": "Read how much of each limit is used",
};
const ALL = Object.keys(EXPLAINED) as Scope[];
const SENDS: readonly Scope[] = ["newsletters:send", "campaigns:send"];

/** Scopes by what a key is for. */
const PURPOSES: Readonly<Record<string, readonly Scope[]>> = {
  "A sign-up form on a website": ["lists:read", "lists:write", "subscribers:read", "subscribers:write"],
  "A shop or a CRM that keeps contacts": ["contacts:read", "contacts:write"],
  "A program that writes drafts": ["newsletters:read", "newsletters:write", "campaigns:read", "campaigns:write"],
  "A program that sends": [
    ...(["lists:read", "newsletters:read", "newsletters:write", "campaigns:read", "campaigns:write"] as const),
    ...SENDS,
  ],
  "Reports and dashboards": ALL.filter((scope) => scope.endsWith(":read")),
  "Clean-up of addresses that get no mail": ["suppressions:read", "suppressions:write", "suppressions:delete"],
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
        <legend>It may</legend>
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
          No key may both send and let addresses get mail again: if it leaked, it could mail people who had opted out.
          Make two keys.
        </p>
        <Refused name="scopes" />
      </fieldset>
    </>
  );
}
