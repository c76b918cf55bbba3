import { useId } from "react";

const NUMBER = new Intl.NumberFormat();

interface BarProps {
  label: string;
  used: number;
  /** Null for none. */
  limit: number | null;
  hint?: string;
}

/** How much of a limit is used. */
export function Bar({ label, used, limit, hint }: BarProps) {
  const id = useId();
  const isFull = limit !== null && used >= limit;
  return (
    <div className="card">
      <h2 id={id}>{label}</h2>
      <p className={isFull ? "wrong" : undefined}>
        {NUMBER.format(used)} {limit === null ? "used, without a limit" : `of ${NUMBER.format(limit)} used`}
        {isFull && "; none is left"}
      </p>
      {limit !== null && <progress aria-labelledby={id} value={Math.min(used, limit)} max={Math.max(limit, 1)} />}
      {hint && <p className="muted">{hint}</p>}
    </div>
  );
}
