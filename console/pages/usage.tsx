import { useId } from "react";
import { capitalized } from "../api.ts";
import { DAY_MS, PageHead, Part } from "../parts/page.tsx";
import { shortPercent } from "../parts/send/words.ts";
import { Table } from "../parts/table.tsx";
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
        Plan: {capitalized(current.plan.toLowerCase())}, {MONTH.format(new Date(period.start))}. Credits are counted per
        calendar month (UTC).
      </p>
      <div className="cards">
        <Bar
          label="Email credits"
          {...credits}
          hint={`One per email. ${credits.reserved.toLocaleString()} are reserved for sends under way, ${credits.remaining.toLocaleString()} are left.`}
        />
        <Bar label="Contacts" {...limits["contacts.slots"]} hint="Unique addresses of contacts and subscribers." />
        <Bar label="Webhook endpoints" {...limits["webhooks.endpoints"]} hint="URLs of your programs." />
        <div className="card">
          <h2>API requests</h2>
          <p>{limits["api.requests_per_minute"].limit.toLocaleString()} per minute</p>
          <p className="muted">Per API key; your own work in the console is counted separately.</p>
        </div>
      </div>
      <Part>
        <Months />
      </Part>
    </>
  );
}

const MOST_DAYS = 180;

/** The emails of the last months. */
function Months() {
  const { client } = useWorkspace();
  const { days } = useData(["usage", "months"], () => {
    const [from, to] = [MOST_DAYS, 0].map((ago) => new Date(Date.now() - ago * DAY_MS).toISOString().slice(0, 10));
    return client.api.analytics.overview.query({ query: { from, to } });
  });
  const months = Map.groupBy(days, ({ date }) => date.slice(0, 7));
  return (
    <>
      <h2>Emails by month</h2>
      <Table
        caption="Emails by month"
        rows={[...months].reverse()}
        keyOf={([month]) => month}
        columns={[
          { name: "Month", cell: ([month]) => MONTH.format(new Date(month)) },
          { name: "Sent", cell: ([, days]) => days.reduce((sum, { sent }) => sum + sent, 0), isNumber: true },
        ]}
      />
      <p className="muted">The last {MOST_DAYS} days; the first of these months may be a part.</p>
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
      <h2 id={id}>{label}</h2>
      <p className={isFull ? "wrong" : undefined}>
        <strong>{used.toLocaleString()}</strong>{" "}
        {limit === null
          ? "used, no limit"
          : `of ${limit.toLocaleString()} used, ${shortPercent(used / Math.max(limit, 1))}`}
        {isFull && "; none left"}
      </p>
      {limit !== null && <progress aria-labelledby={id} value={Math.min(used, limit)} max={Math.max(limit, 1)} />}
      {hint && <p className="muted">{hint}</p>}
    </div>
  );
}
