import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import type { Client } from "../api.ts";
import { Act } from "../parts/act.tsx";
import { useAccounts } from "../parts/draft/drafts.ts";
import { ChoiceFilter, useFilters } from "../parts/filters.tsx";
import { Field, Inputs, type Values } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { choicesOf, Facts, PageHead, Part, State, When } from "../parts/page.tsx";
import { Days, Rates } from "../parts/send/figures.tsx";
import { All } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

/** The providers by their codes, with the server that they usually have. */
const PROVIDERS = {
  SMTP_OTHER: ["Other SMTP server", ""],
  GOOGLE: ["Google (Gmail, Workspace)", "smtp.gmail.com"],
  MICROSOFT: ["Microsoft 365", "smtp.office365.com"],
  SMTP_AMAZON_SES: ["Amazon SES", "email-smtp.eu-central-1.amazonaws.com"],
  SMTP_BREVO: ["Brevo", "smtp-relay.brevo.com"],
  SMTP_MAILGUN: ["Mailgun", "smtp.mailgun.org"],
  SMTP_MAILJET: ["Mailjet", "in-v3.mailjet.com"],
  SMTP_POSTMARK: ["Postmark", "smtp.postmarkapp.com"],
  SMTP_RESEND: ["Resend", "smtp.resend.com"],
  SMTP_SENDGRID: ["SendGrid", "smtp.sendgrid.net"],
  SMTP_SPARKPOST: ["SparkPost", "smtp.sparkpostmail.com"],
} as const;
type Provider = keyof typeof PROVIDERS;

const SECURITIES = {
  starttls: "STARTTLS, usually port 587",
  tls: "TLS, usually port 465",
  none: "None (this machine only)",
};
const count = { type: "number", min: 1 } as const;
const SERVER_INPUTS = [
  ["host", "Server", { required: true }],
  ["port", "Port", { ...count, max: 65_535, required: true }],
  ["security", "Security", { choices: SECURITIES }],
] as const;
const LIMIT_INPUTS = [
  ["max_connections", "Simultaneous connections", { ...count, max: 1_000, required: true }],
  ["hourly_limit", "Emails per hour", { ...count, hint: "As your provider allows. Leave empty for no limit." }],
  ["daily_limit", "Emails per day", { ...count, hint: "A day begins at midnight UTC. Leave empty for no limit." }],
] as const;
const USUAL_SERVER = { port: 587, security: "starttls", max_connections: 10 };

const LOGINS = {
  password: "Password",
  oauth: "OAuth, with a refresh token",
  none: "No login",
};
const secret = { type: "password", autoComplete: "new-password" } as const;
const USERNAME = ["username", "User name", { required: true, autoComplete: "off" }] as const;
const LOGIN_INPUTS = {
  password: [USERNAME, ["password", "Password", { ...secret, required: true }]],
  oauth: [
    USERNAME,
    ["client_id", "Client ID", { required: true, autoComplete: "off" }],
    ["client_secret", "Client secret", { ...secret, hint: "Leave empty if the client has none." }],
    ["refresh_token", "Refresh token", { ...secret, required: true }],
    ["token_url", "Token endpoint", { type: "url", hint: "Leave empty for Google or Microsoft." }],
  ],
  none: [],
} as const;
/** Names of the inputs of a login, as the service names them in its refusals. */
const LOGIN_FIELDS = ["username", "password", "client_id", "client_secret", "refresh_token", "token_url"];

const limitsOf = (values: Values) => ({
  max_connections: Number(values["max_connections"]),
  hourly_limit: Number(values["hourly_limit"]) || null,
  daily_limit: Number(values["daily_limit"]) || null,
});

/** Fields that are empty, or not shown, are left out. */
const loginOf = (values: Values) => ({
  host: values["host"] ?? "",
  port: Number(values["port"]),
  security: values["security"] as keyof typeof SECURITIES,
  ...Object.fromEntries(LOGIN_FIELDS.flatMap((name) => (values[name] ? [[name, values[name]]] : []))),
  username: values["username"] || null,
});

function LoginFields() {
  const [kind, setKind] = useState("password");
  return (
    <>
      <Field label="Login" name="login" choices={LOGINS} value={kind} onChange={setKind} />
      <Inputs inputs={LOGIN_INPUTS[kind as keyof typeof LOGINS]} />
    </>
  );
}

const STATES = {
  ACTIVE: ["Working", "good"],
  PENDING: ["Waiting for its first login", "warn"],
  ERROR: ["Failing", "wrong"],
  SUSPENDED: ["Suspended", "warn"],
  REVOKED: ["Access revoked", "wrong"],
} as const;

const AccountState = ({ status, problem }: { status: keyof typeof STATES; problem: string | null }) => (
  <>
    <State of={STATES} is={status} />
    {problem !== null && <div>{problem}</div>}
  </>
);

type Usage = { used: number; limit: number } | null;
const used = (usage: Usage) =>
  usage === null ? "no limit" : `${usage.used.toLocaleString()} of ${usage.limit.toLocaleString()}`;

/** The sending accounts of a team. */
export function Accounts() {
  const { base } = useWorkspace();
  const [{ status }] = useFilters();
  const accounts = useAccounts();
  return (
    <>
      <PageHead title="Accounts">{useRole("ADMIN") && <Connect />}</PageHead>
      <All
        caption="Sending accounts"
        rows={accounts}
        search={["Address", ({ email }) => email]}
        isShown={(account) => !status || account.status === status}
        keyOf={({ id }) => id}
        columns={[
          { name: "Address", cell: ({ id, email }) => <Link to={`${base}/accounts/${id}`}>{email}</Link> },
          { name: "Status", cell: (account) => <AccountState {...account} /> },
          { name: "This hour", cell: ({ hour }) => used(hour), isNumber: true },
          { name: "Today", cell: ({ day }) => used(day), isNumber: true },
          {
            name: "Connections",
            cell: (account) => `${account.connections} of ${account.max_connections}`,
            isNumber: true,
          },
          { name: "Open sends", cell: ({ open_sends }) => open_sends, isNumber: true },
        ]}
        empty="No accounts yet. Newsletters are sent through your own mailbox or mail server: connect one with its server and login."
      >
        <ChoiceFilter name="status" label="Status" any="All" choices={choicesOf(STATES)} />
      </All>
    </>
  );
}

const FURTHER = "Other domains it may send for, separated by commas.";

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
      note="The login is tested at once, which takes up to 30 seconds."
      inputs={[
        ["email", "Address", { type: "email", required: true }],
        ["display_name", "From name", { maxLength: 200, hint: "Recipients see it. Leave empty to show the address." }],
        ["allowed_domains", "Other domains", { hint: FURTHER }],
      ]}
      onOpen={() => setProvider("SMTP_OTHER")}
      act={connect}
    >
      <Field
        label="Provider"
        name="provider"
        choices={choicesOf(PROVIDERS)}
        value={provider}
        onChange={(chosen) => setProvider(chosen as Provider)}
      />
      <Inputs
        key={provider}
        inputs={[...SERVER_INPUTS, ...LIMIT_INPUTS]}
        values={{ ...USUAL_SERVER, host: PROVIDERS[provider][1] }}
      />
      <LoginFields />
    </Act>
  );
}

/** One sending account. */
export function Account() {
  const { client, base } = useWorkspace();
  const { accountId = "" } = useParams({ strict: false });
  const params = { accountId };
  const navigate = useNavigate();
  const mayWrite = useRole("ADMIN");
  const { accounts } = client.app;
  const read = () => accounts.show.query({ params });
  const account = useData(["accounts", accountId], read);
  const edits = { id: accountId, record: account, read };
  const { status, open_sends: openSends, refused } = account;
  return (
    <>
      <PageHead title={account.email}>
        {mayWrite && (
          <>
            {status !== "ACTIVE" && status !== "REVOKED" && (
              <Act
                title="Resume"
                submit="Log in and resume"
                note="It is used again once the stored login works."
                act={() => accounts.resume.mutate({ params })}
              />
            )}
            <Act
              title="Change limits"
              submit="Save"
              inputs={LIMIT_INPUTS}
              values={account}
              edits={edits}
              act={(values, _, save) => {
                const body = limitsOf(values);
                return save(body, (options) => accounts.update.mutate({ params, body }, options));
              }}
            />
            <More>
              {status === "ACTIVE" && (
                <Act
                  title="Suspend"
                  note={`Sends that use it wait until you resume it: ${openSends || "none"} now.`}
                  act={() => accounts.suspend.mutate({ params })}
                />
              )}
              <Act
                title="Change server or login"
                submit="Log in and save"
                note="They replace the current ones once the login works. The login cannot be viewed afterwards."
                inputs={SERVER_INPUTS}
                values={account}
                edits={edits}
                act={(values, _, save) => {
                  const body = loginOf(values);
                  return save(body, (options) => accounts.setCredentials.mutate({ params, body }, options));
                }}
              >
                <LoginFields />
              </Act>
              <Act
                title="Disconnect"
                kind="danger"
                note="The account and its login are deleted. To use it later, connect it again."
                act={async () => {
                  await accounts.disconnect.mutate({ params });
                  await navigate({ to: `${base}/accounts` });
                }}
              >
                <Uses accountId={accountId} />
              </Act>
            </More>
          </>
        )}
      </PageHead>
      <Facts
        of={[
          ["Status", <AccountState key="state" {...account} />],
          ["Refused connections", refused && `${refused.count} in a row`],
          ["Next attempt", refused && <When at={refused.retry_at} />],
          ["Name", account.display_name],
          ["Also sends for", account.allowed_domains.join(", ") || "no other domain"],
          [
            "DNS records",
            <Link key="domain" to={`${base}/domains`}>
              {account.email.split("@").at(-1)}
            </Link>,
          ],
          ["Provider", PROVIDERS[account.provider][0]],
          ["Server", `${account.host}, port ${account.port}`],
          ["Security", account.security === "none" ? "none" : account.security.toUpperCase()],
          ["Login", LOGINS[account.login]],
          ["Last checked", account.last_checked_at && <When at={account.last_checked_at} />],
          ["Next check", account.next_check_at && <When at={account.next_check_at} />],
          ["Connections", `${account.connections} of ${account.max_connections} in use`],
          ["This hour", <Used key="hour" usage={account.hour} />],
          ["Today (UTC)", <Used key="day" usage={account.day} />],
          ["Open sends", openSends],
        ]}
      />
      <Part>
        <Health accountId={accountId} />
      </Part>
    </>
  );
}

/** How the mails of an account fared. */
function Health({ accountId }: { accountId: string }) {
  const read = ({ app }: Client) => app.accounts.health.query({ params: { accountId } });
  const { days, totals, rates, is_shared: isShared } = useData(["accounts", accountId, "health"], read);
  if (totals.sent + totals.rejected === 0) return null;
  return (
    <section className="stack" aria-label="Last 30 days">
      <h2>Last 30 days</h2>
      <Rates totals={totals} rates={rates} beside={false} />
      <Days days={days} />
      {isShared && <p className="muted">Campaigns sent through several accounts are counted here as a whole.</p>}
    </section>
  );
}

function Used({ usage }: { usage: Usage }) {
  if (usage === null) return "No limit";
  const text = `${used(usage)} emails`;
  return (
    <>
      {text} <progress value={usage.used} max={usage.limit} aria-label={text} />
    </>
  );
}

function Uses({ accountId }: { accountId: string }) {
  const { client, base } = useWorkspace();
  const params = { accountId };
  const { uses, refusal } = useData(["uses", accountId], () => client.app.accounts.uses.query({ params }));
  return (
    <>
      <p>{uses.length === 0 ? "No draft, send or sequence uses it." : "Used by:"}</p>
      <ul>
        {uses.map(({ id, kind, name, status }) => (
          <li key={id}>
            <Link to={`${base}/${kind}s/${id}`}>{name}</Link> ({kind}, {status.toLowerCase()})
          </li>
        ))}
      </ul>
      {refusal !== null && <p className="wrong">{refusal}</p>}
    </>
  );
}
