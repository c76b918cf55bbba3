import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import type { ReactNode } from "react";
import {
  AccountState,
  LIMIT_INPUTS,
  LOGIN_FIELDS,
  LOGINS,
  LoginFields,
  limitsOf,
  loginOf,
  PROVIDERS,
  SERVER_INPUTS,
} from "../parts/account.tsx";
import { Act, Facts, useDone } from "../parts/act.tsx";
import { When } from "../parts/filters.tsx";
import { Loading, PageHead, Problem } from "../parts/page.tsx";
import { useRole, useWorkspace } from "../session.tsx";

/** One sending account. */
export function Page(): ReactNode {
  const { client, base } = useWorkspace();
  const { accountId = "" } = useParams({ strict: false });
  const params = { accountId };
  const done = useDone("accounts");
  const navigate = useNavigate();
  const mayWrite = useRole("ADMIN");
  const { accounts } = client.app;
  const queryKey = [base, "accounts", accountId];
  const query = useQuery({ queryKey, queryFn: () => accounts.show.query({ params }) });
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} />;
  const account = query.data.data;
  const { status, open_sends: openSends, refused } = account;
  return (
    <>
      <PageHead title={account.email}>
        {mayWrite && (
          <>
            {status === "ACTIVE" && (
              <Act
                title="Suspend"
                note={`Sends that use it wait until you resume it; there are ${openSends || "none"} now.`}
                act={() => done(accounts.suspend.mutate({ params }))}
              />
            )}
            {status !== "ACTIVE" && status !== "REVOKED" && (
              <Act
                title="Resume"
                submit="Log in and resume"
                note="It is used again once the server lets it log in with the stored login."
                act={() => done(accounts.resume.mutate({ params }))}
              />
            )}
            <Act
              title="Change limits"
              submit="Save"
              inputs={LIMIT_INPUTS}
              values={account}
              act={(values) => done(accounts.update.mutate({ params, body: limitsOf(values) }))}
            />
            <Act
              title="New server or login"
              submit="Log in and save"
              note="Both take the place of the present ones once the login works. It cannot be read here afterwards."
              inputs={SERVER_INPUTS}
              values={account}
              fields={[...SERVER_INPUTS.map(([name]) => name), ...LOGIN_FIELDS]}
              act={(values) => done(accounts.setCredentials.mutate({ params, body: loginOf(values) }))}
            >
              {(problemOf) => <LoginFields problemOf={problemOf} />}
            </Act>
            <Act
              title="Disconnect"
              kind="danger"
              note="The account and its login are deleted. To use it again, connect it anew."
              act={async () => {
                await accounts.disconnect.mutate({ params });
                await navigate({ to: `${base}/accounts` });
              }}
            >
              <Uses accountId={accountId} />
            </Act>
          </>
        )}
      </PageHead>
      <Facts
        of={[
          ["State", <AccountState key="state" {...account} />],
          ["Refused", refused && `${refused.count} connections in a row`],
          ["Tried again", refused && <When at={refused.retry_at} />],
          ["Name", account.display_name],
          ["Also sends for", account.allowed_domains.join(", ") || "no other domain"],
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
    </>
  );
}

function Used({ usage }: { usage: { used: number; limit: number } | null }) {
  if (usage === null) return "No limit";
  const text = `${usage.used.toLocaleString()} of ${usage.limit.toLocaleString()} mails`;
  return (
    <>
      {text} <progress value={usage.used} max={usage.limit} aria-label={text} />
    </>
  );
}

function Uses({ accountId }: { accountId: string }) {
  const { client, base } = useWorkspace();
  const queryFn = () => client.app.accounts.uses.query({ params: { accountId } });
  const query = useQuery({ queryKey: [base, "uses", accountId], queryFn, gcTime: 0 });
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} />;
  const { uses, refusal } = query.data.data;
  return (
    <>
      <p>{uses.length === 0 ? "No draft, send or sequence uses it." : "These use it:"}</p>
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
