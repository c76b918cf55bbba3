const FORMAT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** An instant, in the reader's own time zone; a dash for none. */
export const Time = ({ at }: { at: string | null | undefined }) =>
  at ? <time dateTime={at}>{FORMAT.format(new Date(at))}</time> : <>–</>;
