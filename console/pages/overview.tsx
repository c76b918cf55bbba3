import { Link } from "@tanstack/react-router";
import { Fragment } from "react";
import { Facts, PageHead, Part, When } from "../parts/page.tsx";
import { useProgress } from "../parts/send/calls.ts";
import { Days, Rates, useEarlier } from "../parts/send/figures.tsx";
import { LiveSend } from "../parts/send/live-send.tsx";
import { pauseText, reasonText } from "../parts/send/words.ts";
import { NewDraft } from "../parts/templates.tsx";
import { useData, useWorkspace } from "../session.tsx";

/** How the team's mail goes, and what needs a person. */
export function Page() {
  return (
    <>
      <PageHead title="Overview">
        <NewDraft kind="newsletter" />
      </PageHead>
      {[Attention, GoingOut, LastSends, Audience, LastDays].map((Section) => (
        <Part key={Section.name}>
          <Section />
        </Part>
      ))}
    </>
  );
}

const STEPS = {
  account: ["accounts", "Connect a sending account"],
  domain: ["domains", "Publish your domain's DNS records"],
  list: ["lists", "Create a list"],
  people: ["imports", "Import people"],
  draft: ["newsletters", "Write a newsletter"],
} as const;

const useAttention = () => useData(["attention"], ({ app }) => app.overview.attention.query({}));

function Attention() {
  const { base } = useWorkspace();
  const { items, steps, credits } = useAttention();
  const names = Object.keys(STEPS) as (keyof typeof STEPS)[];
  const left = names.filter((step) => !steps[step]);
  // Mail may be sent before the records are found: the steps that are done would stand here for as long.
  const shown = left.every((step) => step === "domain") ? left : names;
  const needOf = ({ kind, type, id, reason }: (typeof items)[number]): readonly [path: string, text: string] => {
    const words = reasonText(reason ?? "");
    if (kind === "account") return [`accounts/${id}`, `cannot send: ${words}.`];
    if (kind === "send") return [`${type}s/${id}`, `is paused. ${pauseText(reason)}`];
    if (kind === "sequence") return [`sequences/${id}`, `is paused${reason ? `: ${words}` : ""}.`];
    if (kind === "webhook") return [`webhooks/${id}`, `is turned off: ${words}.`];
    const [left, used] = [credits.available.toLocaleString(), credits.used_in_a_week.toLocaleString()];
    return ["usage", `are running low: ${left} left, and ${used} used in the last week.`];
  };
  return (
    <>
      {items.length > 0 && (
        <section className="card stack" aria-label="Needs attention">
          <h2>Needs attention</h2>
          <ul className="steps">
            {items.map((item) => {
              const [path, text] = needOf(item);
              return (
                <li key={item.kind + item.id}>
                  <Link to={`${base}/${path}`}>{item.kind === "credits" ? "Credits" : item.name}</Link> {text}
                </li>
              );
            })}
          </ul>
        </section>
      )}
      {shown.length > 0 && (
        <section className="card stack" aria-label="First steps">
          <h2>First steps</h2>
          <ol className="steps">
            {shown.map((step) => {
              const [path, text] = STEPS[step];
              return (
                <li key={step}>
                  {steps[step] ? (
                    <span className="good">✓ {text}: done</span>
                  ) : (
                    <Link to={`${base}/${path}`}>{text}</Link>
                  )}
                </li>
              );
            })}
          </ol>
        </section>
      )}
    </>
  );
}

function GoingOut() {
  const { base } = useWorkspace();
  const sends = useProgress();
  const { sequences } = useData(["sequences", "running"], ({ app }) =>
    app.sequences.page.query({ query: { status: "ACTIVE" } }),
  );
  return (
    <section className="stack" aria-label="Sending and scheduled">
      <h2>Sending and scheduled</h2>
      {sequences.length > 0 && (
        <p>
          Running sequences:{" "}
          {sequences.map(({ id, name }, i) => (
            <Fragment key={id}>
              {i > 0 && ", "}
              <Link to={`${base}/sequences/${id}`}>{name}</Link>
            </Fragment>
          ))}
        </p>
      )}
      {sends.length + sequences.length === 0 && <p className="muted">Nothing is being sent or scheduled.</p>}
      {sends.map((send) => (
        <article key={send.id} className="card stack">
          <h3>
            <Link to={`${base}/${send.is_sequence ? "sequence" : send.type}s/${send.resource_id}`}>{send.name}</Link>
          </h3>
          <LiveSend send={send} />
        </article>
      ))}
    </section>
  );
}

function LastSends() {
  const { base } = useWorkspace();
  const { last, sends, rates } = useEarlier();
  if (!last) return null;
  return (
    <section className="stack" aria-label="Last send">
      <h2>Last send</h2>
      <p>
        <Link to={`${base}/${last.type}s/${last.id}`}>{last.name}</Link>, <When at={last.completed_at} />
      </p>
      <Rates totals={last.counts} rates={last.rates} beside={sends > 1 && [`Last ${sends} sends`, rates]} />
    </section>
  );
}

function Audience() {
  const { base } = useWorkspace();
  const { people: size, new_subscribers: added } = useAttention();
  if (size === 0) return null;
  return (
    <section className="stack" aria-label="Audience">
      <h2>Audience</h2>
      <Facts
        className="figures"
        of={[
          [
            "People",
            <Link key="people" to={`${base}/people`}>
              {size.toLocaleString()}
            </Link>,
          ],
          ["New subscribers in 30 days", `${added.count.toLocaleString()}${added.has_more ? " or more" : ""}`],
        ]}
      />
    </section>
  );
}

function LastDays() {
  const { client, base } = useWorkspace();
  const { totals, days } = useData(["analytics"], () => client.api.analytics.overview.query({ query: {} }));
  return (
    <section className="stack" aria-label="Last 30 days">
      <h2>Last 30 days</h2>
      {totals.sent + totals.rejected === 0 ? (
        <p className="empty">
          No emails were sent in the last 30 days. <Link to={`${base}/newsletters`}>Write a newsletter</Link>, then
          check and send it from its page.
        </p>
      ) : (
        <Days days={days} />
      )}
    </section>
  );
}
