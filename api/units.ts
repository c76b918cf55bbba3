const UNITS = [
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
] as const;

/** Whole seconds in words: 5,400 is "1 hour and 30 minutes". */
export function durationText(seconds: number): string {
  let rest = seconds;
  const parts = UNITS.flatMap(([unit, size]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return count === 0 ? [] : [`${count} ${unit}${count === 1 ? "" : "s"}`];
  });
  return parts.join(" and ") || "0 seconds";
}

/** Bytes in the largest unit that divides them: 2,097,152 is "2 MiB". */
export function sizeText(bytes: number): string {
  if (bytes % 1_048_576 === 0) return `${bytes / 1_048_576} MiB`;
  return bytes % 1_024 === 0 ? `${numberText(bytes / 1_024)} KiB` : `${numberText(bytes)} bytes`;
}

/** A number with its thousands set apart: "10,000". */
export const numberText = (value: number): string => value.toLocaleString("en");
