import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import type uPlot from "uplot";
import { FORMATS, rangeOf, tickText, UNIT_S } from "./chart-time.ts";
import { Ticks } from "./form.tsx";
import { Table } from "./table.tsx";

export interface Series {
  name: string;
  /** One for each day or hour. */
  values: readonly number[];
}

interface ChartProps {
  title: string;
  /** As `2026-11-21`, or instants at which hours begin, in their order. */
  times: readonly string[];
  unit: keyof typeof FORMATS;
  /** At most as many as there are colours. */
  series: readonly Series[];
}

const HEIGHT = 240;
/** Custom properties of the style sheet. */
const COLOURS = ["accent", "good", "purple", "teal", "warn", "bad", "muted"];

/** Lines over days or hours, with the same numbers in a table. */
export function Chart({ title, times, unit, series }: ChartProps) {
  const timeText = (time: string) => FORMATS[unit].format(new Date(time));
  const names = series.map(({ name }) => name);
  const [shown, setShown] = useState<readonly string[]>(names);
  const [at, setAt] = useState<number | null>(null);
  const pointed = at === null ? undefined : times[at];
  const numbers = series.map(({ values }) => values.reduce((sum, value) => sum + value, 0));
  return (
    <figure>
      <figcaption>
        {title}
        <span className="muted"> {pointed === undefined ? "in all" : timeText(pointed)}</span>
      </figcaption>
      <Plot times={times} unit={unit} series={series} shown={shown} onTime={setAt} />
      <Ticks
        className="legend"
        options={series.map(({ name, values }, i) => ({
          id: name,
          name: (
            <>
              <span className="swatch" style={{ background: `var(--${COLOURS[i]})` }} /> {name}{" "}
              <strong>{(at === null ? numbers[i] : values[at])?.toLocaleString()}</strong>
            </>
          ),
        }))}
        chosen={shown}
        onChange={setShown}
      />
      <details>
        <summary>Show as a table</summary>
        <Table
          caption={title}
          rows={times.map((time, i) => ({ time, i }))}
          keyOf={({ time }) => time}
          columns={[
            { name: { day: "Day", hour: "Hour", minute: "Time" }[unit], cell: ({ time }) => timeText(time) },
            ...series.map(({ name, values }) => ({
              name,
              cell: ({ i }: { i: number }) => values[i]?.toLocaleString(),
              isNumber: true,
            })),
          ]}
        />
      </details>
    </figure>
  );
}

const DARK = window.matchMedia("(prefers-color-scheme: dark)");
const useIsDark = () =>
  useSyncExternalStore(
    (onChange) => {
      DARK.addEventListener("change", onChange);
      return () => DARK.removeEventListener("change", onChange);
    },
    () => DARK.matches,
  );

interface PlotProps extends Omit<ChartProps, "title"> {
  /** Names of series. */
  shown: readonly string[];
}

function Plot({ onTime, ...props }: PlotProps & { onTime: (index: number | null) => void }) {
  const ref = useRef<HTMLDivElement>(null);
  // Made again when anything that it shows changes, also the colours; the lists are new at each render.
  const key = JSON.stringify({ ...props, isDark: useIsDark() });
  useEffect(() => {
    const box = ref.current;
    if (!box) return;
    const plotted: PlotProps = JSON.parse(key);
    let plot: uPlot | undefined;
    let isGone = false;
    const resized = new ResizeObserver(() => plot?.setSize({ width: box.clientWidth, height: HEIGHT }));
    void Promise.all([import("uplot"), import("uplot/dist/uPlot.min.css")]).then(([{ default: UPlot }]) => {
      if (isGone) return;
      const values = plotted.series.map((one) => [...one.values]);
      const times = plotted.times.map((time) => Date.parse(time) / 1_000);
      plot = new UPlot(optionsOf(box, UPlot, plotted, onTime), [times, ...values], box);
      resized.observe(box);
    });
    return () => {
      isGone = true;
      resized.disconnect();
      plot?.destroy();
    };
  }, [key, onTime]);
  return <div ref={ref} className="plot" aria-hidden="true" />;
}

function optionsOf(
  box: HTMLElement,
  UPlot: typeof uPlot,
  { times, unit, series, shown }: PlotProps,
  onTime: (index: number | null) => void,
): uPlot.Options {
  // A canvas knows no custom properties: the browser resolves them on an element.
  const colour = (name: string): string => {
    box.style.color = `var(--${name})`;
    const { color } = getComputedStyle(box);
    box.style.color = "";
    return color;
  };
  const [text, line] = [colour("muted"), colour("line")];
  const axis: uPlot.Axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  return {
    width: box.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    ...(unit === "day" && { tzDate: (seconds: number) => UPlot.tzDate(new Date(seconds * 1_000), "Etc/UTC") }),
    scales: {
      x: {
        range: () =>
          rangeOf(
            times.map((time) => Date.parse(time) / 1_000),
            unit,
            Date.now() / 1_000,
          ),
      },
      y: { range: (_plot, _min, max) => [0, Math.max(max * 1.05, 4)] },
    },
    axes: [
      {
        ...axis,
        values: (_plot, splits) => splits.map((split) => tickText(split, unit)),
        incrs: [1, 2, 3, 6, 12, 24, 48].map((units) => units * UNIT_S[unit]),
        space: 90,
      },
      { ...axis, values: (_plot, splits) => splits.map((y) => (y % 1 ? "" : y.toLocaleString())), size: 70 },
    ],
    series: [
      {},
      ...series.map(({ name }, i) => ({
        label: name,
        show: shown.includes(name),
        stroke: colour(COLOURS[i] ?? "text"),
        width: 2,
        // The responses of an hour did not all come at its beginning: a line to the next one would show a fall.
        ...(unit !== "day" && UPlot.paths.stepped && { paths: UPlot.paths.stepped({ align: 1, extend: true }) }),
        // A line needs two.
        points: { show: times.length === 1, size: 8 },
      })),
    ],
    hooks: { setCursor: [({ cursor }) => onTime(cursor.idx ?? null)] },
  };
}
