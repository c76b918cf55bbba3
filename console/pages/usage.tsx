import { useQuery } from "@tanstack/react-query";
import { Bar } from "../parts/bar.tsx";
import { Loading, PageHead, Problem } from "../parts/page.tsx";
import { useWorkspace } from "../session.tsx";

const MONTH = new Intl.DateTimeFormat(undefined, { month: "long", year: "numeric", timeZone: "UTC" });
const NUMBER = new Intl.NumberFormat();

/** The limits of the team's plan, and how much of each is used. */
export function Page() {
  const { client, base, current } = useWorkspace();
  const query = useQuery({ queryKey: [base, "usage"], queryFn: () => client.api.usage.retrieve.query({}) });
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} />;
  const { period, limits } = query.data.data;
  const credits = limits["email.credits"];
  const slots = limits["contacts.slots"];
  const endpoints = limits["webhooks.endpoints"];
  const requests = limits["api.requests_per_minute"];
  return (
    <>
      <PageHead title="Usage" />
      <p>
        Plan {current.plan}, {MONTH.format(new Date(period.start))}. Credits are counted by the month in UTC.
      </p>
      <div className="cards">
        <Bar
          label="Email credits"
          used={credits.used}
          limit={credits.limit}
          hint={`One for each mail. ${NUMBER.format(credits.reserved)} are set aside for sends under way, ${NUMBER.format(credits.remaining)} are left.`}
        />
        <Bar
          label="Contact slots"
          used={slots.used}
          limit={slots.limit}
          hint="Different addresses of contacts and subscribers."
        />
        <Bar label="Webhook endpoints" used={endpoints.used} limit={endpoints.limit} />
        <div className="card">
          <h2>API requests</h2>
          <p>{NUMBER.format(requests.limit)} in a minute</p>
          <p className="muted">For each API key; your own work in the console counts for itself.</p>
        </div>
      </div>
    </>
  );
}
