import type { ReactNode } from "react";

export type Figure = [name: string, value: ReactNode];

/** Numbers with their names. */
export const Figures = ({ figures }: { figures: readonly Figure[] }) => (
  <dl className="figures">
    {figures.map(([name, value]) => (
      <div key={name}>
        <dt>{name}</dt>
        <dd>{value}</dd>
      </div>
    ))}
  </dl>
);
