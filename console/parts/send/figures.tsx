import type { Client, DataOf } from "../../api.ts";
import { useData } from "../../session.tsx";
import { Chart } from "../chart.tsx";
import { Facts } from "../page.tsx";
import { percent, shortPercent } from "./words.ts";

/** The rates of the last ten sends, or of the ten before one. */
export const useEarlier = (id?: string) =>
  useData(["earlier", id], ({ app }) => app.overview.earlier.query({ body: { resource_id: id } }));

type Overview = DataOf<Client["api"]["analytics"]["overview"]["query"]>;

interface RatesProps {
  totals: Omit<Overview["days"][number], "date">;
  rates: Overview["rates"];
  /** The rates of others, what they are called, and which they are. */
  beside: readonly [name: string, rates: Overview["rates"], title?: string] | null | false;
  /** Leads to the people of a figure. */
  onShow?: (activity: string) => void;
}

const FEWER_IS_BETTER = ["bounced", "complained", "unsubscribed"];

/** The responses to mails, as counts and rates. */
export function Rates({ totals, rates, beside, onShow }: RatesProps) {
  const rows: [name: string, count: number, figure: keyof typeof rates][] = [
    ["Delivered", totals.delivered, "delivered"],
    ["Opened", totals.opened_unique, "opened"],
    ["Clicked", totals.clicked_unique, "clicked"],
    ["Bounced", totals.bounced_hard + totals.bounced_soft, "bounced"],
    ["Complained", totals.complained, "complained"],
    ["Unsubscribed", totals.unsubscribed, "unsubscribed"],
  ];
  const isTracked = totals.tracked > 0 || totals.sent === 0;
  return (
    <Facts
      className="figures"
      of={rows.map(([name, count, figure]) => [
        name,
        (isTracked || (figure !== "opened" && figure !== "clicked")) && (
          <>
            {onShow && count > 0 && figure !== "delivered" ? (
              <button
                type="button"
                className="plain"
                aria-label={`${name}: ${count.toLocaleString()}`}
                onClick={() => onShow(figure)}
              >
                {count.toLocaleString()}
              </button>
            ) : (
              count.toLocaleString()
            )}{" "}
            <span className="muted">
              {shortPercent(rates[figure])}
              {figure === "clicked" &&
                totals.opened_unique > 0 &&
                ` · ${percent(count / totals.opened_unique, 0)} of opens`}
            </span>
            {/* Green is for those of which more is better. */}
            <meter
              value={rates[figure] ?? 0}
              {...(FEWER_IS_BETTER.includes(figure) && { low: 0, optimum: 0 })}
              aria-label={`${name}: ${percent(rates[figure] ?? 0, 2)}`}
            />
            {beside && beside[1][figure] !== null && (
              <small className="muted" title={beside[2]}>
                {beside[0]}: {shortPercent(beside[1][figure])}
              </small>
            )}
          </>
        ),
      ])}
    />
  );
}

/** The figures of the last days as lines. */
export function Days({ days }: Pick<Overview, "days">) {
  const series = (name: string, figure: (day: Overview["days"][number]) => number) => ({
    name,
    values: days.map(figure),
  });
  return (
    <Chart
      title={`Emails in the last ${days.length} days`}
      times={days.map(({ date }) => date)}
      unit="day"
      series={[
        series("Sent", (day) => day.sent),
        series("Delivered", (day) => day.delivered),
        series("Opened", (day) => day.opened_unique),
        series("Clicked", (day) => day.clicked_unique),
        series("Bounced", (day) => day.bounced_hard + day.bounced_soft),
        series("Complained", (day) => day.complained),
        series("Unsubscribed", (day) => day.unsubscribed),
      ]}
    />
  );
}
