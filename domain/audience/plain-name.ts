/** Longest name that a confirmation mail shows, in characters. */
const MAX_LENGTH = 60;

/**
 * A name that a client chose, as a mail to a person who did not ask for it may show it: short, in letters, digits and a
 * few signs. Mail programs make links of addresses and telephone numbers, so it keeps neither dots, slashes and colons
 * nor long numbers.
 * @param otherwise is shown in place of a name that would be empty
 */
export function plainName(name: string, otherwise: string): string {
  const plain = name
    // A full-width dot is one to a mail program too.
    .normalize("NFKC")
    .replace(/[^\p{L}\p{M}\p{N}'&(),-]+/gu, " ")
    .replace(/\p{Nd}(?:[ (),-]*\p{Nd}){5,}/gu, " ")
    .replace(/ +/g, " ")
    .trim();
  return [...plain].slice(0, MAX_LENGTH).join("").trim() || otherwise;
}
