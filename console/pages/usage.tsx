import { useId } from "react";
import { PageHead } from "../parts/page.tsx";
import { useData, useWorkspace } from "../session.tsx";

const MONTH = new Intl.DateTimeFormat(undefined, { month: "long", year: "numeric", timeZone: "UTC" });

/** The limits of the team's plan, and how much of each is used. */
export function Page() {
  const { client, current } = useWorkspace();
  const { period, limits } = useData(["usage"], () => client.api.usage.retrieve.query({}));
  const credits = limits["email.credits"];
  return (
    <>
      <PageHead title="Usage" />
      <p>
        Plan: {current.plan.toLowerCase()}, {MONTH.format(new Date(period.start))}. Credits are counted per calendar
        month (UTC).
      </p>
      <h2>Emails</h2>
      <div className="cards">
        <Bar
          label="Email credits"
          {...credits}
          hint={`One per email. ${credits.reserved.toLocaleString()} are reserved for sends under way, ${credits.remaining.toLocaleString()} are left.`}
        />
      </div>
      <h2>Audience</h2>
      <div className="cards">
        <Bar label="Contacts" {...limits["contacts.slots"]} hint="Unique addresses of contacts and subscribers." />
      </div>
      <h2>Programs</h2>
      <div className="cards">
        <Bar label="Webhook endpoints" {...limits["webhooks.endpoints"]} hint="URLs of your programs." />
        <div className="card">
          <h3>API requests</h3>
          <p>{limits["api.requests_per_minute"].limit.toLocaleString()} per minute</p>
          <p className="muted">Per API key; your own work in the console is counted separately.</p>
        </div>
      </div>
    </>
  );
}

interface BarProps {
  label: string;
  used: number;
  /** Null for none. */
  limit: number | null;
  hint?: string;
}

/** How much of a limit is used. */
function Bar({ label, used, limit, hint }: BarProps) {
  const id = useId();
  const isFull = limit !== null && used >= limit;
  return (
    <div className="card">
      <h3 id={id}>{label}</h3>
      <p className={isFull ? "wrong" : undefined}>
        {used.toLocaleString()} {limit === null ? "used, no limit" : `of ${limit.toLocaleString()} used`}
        {isFull && "; none left"}
      </p>
      {limit !== null && <progress aria-labelledby={id} value={Math.min(used, limit)} max={Math.max(limit, 1)} />}
      {hint && <p className="muted">{hint}</p>}
    </div>
  );
}
