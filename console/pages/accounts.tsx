import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import {
  ACCOUNT_STATES,
  AccountState,
  LIMIT_INPUTS,
  LOGIN_FIELDS,
  LoginFields,
  limitsOf,
  loginOf,
  PROVIDERS,
  type Provider,
  SERVER_INPUTS,
  USUAL_SERVER,
} from "../parts/account.tsx";
import { Act } from "../parts/act.tsx";
import { All, contains } from "../parts/all.tsx";
import { ChoiceFilter, FilterBar, SearchFilter, useFilters } from "../parts/filters.tsx";
import { Field, Inputs, type Values } from "../parts/form.tsx";
import { PageHead } from "../parts/page.tsx";
import { useRole, useWorkspace } from "../session.tsx";

const used = (usage: { used: number; limit: number } | null) =>
  usage === null ? "no limit" : `${usage.used.toLocaleString()} of ${usage.limit.toLocaleString()}`;

/** The sending accounts of a team. */
export function Page() {
  const { client, base } = useWorkspace();
  const [{ q, status }] = useFilters();
  const query = useQuery({
    queryKey: [base, "accounts", "list"],
    queryFn: async () => (await client.app.accounts.list.query({})).data,
  });
  const choices = Object.fromEntries(Object.entries(ACCOUNT_STATES).map(([name, [text]]) => [name, text]));
  return (
    <>
      <PageHead title="Accounts">{useRole("ADMIN") && <Connect />}</PageHead>
      <FilterBar>
        <SearchFilter name="q" label="Address" />
        <ChoiceFilter name="status" label="State" any="All" choices={choices} />
      </FilterBar>
      <All
        caption="Sending accounts"
        query={query}
        isShown={(account) => (!status || account.status === status) && contains(account.email, q)}
        keyOf={({ id }) => id}
        columns={[
          { name: "Address", cell: ({ id, email }) => <Link to={`${base}/accounts/${id}`}>{email}</Link> },
          { name: "State", cell: (account) => <AccountState {...account} /> },
          { name: "This hour", cell: ({ hour }) => used(hour), isNumber: true },
          { name: "Today", cell: ({ day }) => used(day), isNumber: true },
          {
            name: "Connections",
            cell: (account) => `${account.connections} of ${account.max_connections}`,
            isNumber: true,
          },
          { name: "Open sends", cell: ({ open_sends }) => open_sends, isNumber: true },
        ]}
        empty="No account yet. Newsletters leave by a mailbox or relay of yours: connect one with its server and login."
      />
    </>
  );
}

const FURTHER = "Domains that it may send for beside its own address, separated by commas.";

function Connect() {
  const { client, base } = useWorkspace();
  const navigate = useNavigate();
  const [provider, setProvider] = useState<Provider>("SMTP_OTHER");
  const connect = async (values: Values) => {
    const { email = "", display_name, allowed_domains = "" } = values;
    const domains = allowed_domains.split(/[\s,]+/).filter((name) => name !== "");
    const body = { email, provider, ...limitsOf(values), ...loginOf(values), allowed_domains: domains };
    const named = { ...body, ...(display_name && { display_name }) };
    const { data } = await client.app.accounts.connect.mutate({ body: named });
    await navigate({ to: `${base}/accounts/${data.id}` });
  };
  return (
    <Act
      title="Connect an account"
      submit="Log in and connect"
      kind="primary"
      note="The server is asked at once whether the login works, which takes up to 30 seconds."
      inputs={[
        ["email", "Address", { type: "email", required: true }],
        ["display_name", "Name beside the address", { maxLength: 200, hint: "Readers see it. Empty: the address." }],
        ["allowed_domains", "Further domains", { hint: FURTHER }],
      ]}
      fields={[...[...SERVER_INPUTS, ...LIMIT_INPUTS].map(([name]) => name), ...LOGIN_FIELDS]}
      act={connect}
    >
      {(problemOf) => (
        <>
          <Field
            label="Provider"
            name="provider"
            control={(id) => (
              <select id={id} value={provider} onChange={({ target }) => setProvider(target.value as Provider)}>
                {Object.entries(PROVIDERS).map(([name, [text]]) => (
                  <option key={name} value={name}>
                    {text}
                  </option>
                ))}
              </select>
            )}
          />
          <Inputs
            key={provider}
            inputs={[...SERVER_INPUTS, ...LIMIT_INPUTS]}
            problemOf={problemOf}
            values={{ ...USUAL_SERVER, host: PROVIDERS[provider][1] }}
          />
          <LoginFields problemOf={problemOf} />
        </>
      )}
    </Act>
  );
}
