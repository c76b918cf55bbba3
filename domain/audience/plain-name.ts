const MAX_LENGTH = 60;

/**
 * Makes a client's name harmless for a mail to a person who did not ask for it. Mail programs make links of addresses and
 * telephone numbers, so dots, slashes, colons and long numbers are left out.
 */
export function plainName(name: string, otherwise: string): string {
  const plain = name
    // Mail programs read a full-width dot as a dot.
    .normalize("NFKC")
    .replace(/[^\p{L}\p{M}\p{N}'&(),-]+/gu, " ")
    .replace(/\p{Nd}(?:[ (),-]*\p{Nd}){5,}/gu, " ")
    .replace(/ +/g, " ")
    .trim();
  return [...plain].slice(0, MAX_LENGTH).join("").trim() || otherwise;
}

/** The first lines of a postal address in one. Each part is plain by itself: two numbers beside each other stay. */
export const plainAddress = (address: string | null): string => {
  const parts = (address ?? "").split(/[\n,]/).flatMap((part) => plainName(part, "") || []);
  return parts.slice(0, 6).join(", ");
};
