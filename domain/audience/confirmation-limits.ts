import type { WithheldReason } from "../../db/entities/audience.ts";

/** Days, UTC, over which the mails to one address are counted. */
export const ADDRESS_WINDOW_DAYS = 7;

export interface ConfirmationLimits {
  /** To one address, in `ADDRESS_WINDOW_DAYS` days: by a team, and as many by the forms of all teams. */
  perAddress: number;
  perTeam: number;
}

/** A mail that is due, and the mails that its team has caused before. */
export interface CountedMail {
  teamId: string;
  listId: string;
  /** Of `mailboxOf`. */
  mailbox: string;
  isSuppressed: boolean;
  /** An earlier try of this very mail failed or was lost: it is counted already. */
  isRetry: boolean;
  /** For the same list and mailbox, today. */
  sentForList: number;
  /** To the same mailbox, in `ADDRESS_WINDOW_DAYS` days. */
  sentToMailbox: number;
  sentByTeam: number;
  /** The person signed up at a form. */
  isByForm: boolean;
  /** To the same mailbox by forms of all teams, in `ADDRESS_WINDOW_DAYS` days. */
  sentByForms: number;
}

/** A mail that is withheld for these reasons is never sent where it was asked for at a form: a program may have asked. */
export const isDropped = ({ isByForm }: Pick<CountedMail, "isByForm">, reason: WithheldReason | null): boolean =>
  isByForm && (reason === "list_limit" || reason === "address_limit");

/** Decides for each mail, in their order, why it is withheld; null for one that is sent, which counts for those behind it. */
export function applyLimits(
  mails: readonly CountedMail[],
  { perAddress, perTeam }: ConfirmationLimits,
): (WithheldReason | null)[] {
  const counts = new Map<string, number>();
  const countOf = (key: string) => counts.get(key) ?? 0;
  return mails.map(({ teamId, listId, mailbox, isSuppressed, isRetry, isByForm, ...sent }) => {
    if (isSuppressed) return "suppressed";
    if (isRetry) return null;
    const address = `${teamId}/${mailbox}`;
    const addressOnList = `${address}/${listId}`;
    const byForms = isByForm ? [`forms/${mailbox}`] : [];
    if (sent.sentForList + countOf(addressOnList) > 0) return "list_limit";
    if (sent.sentToMailbox + countOf(address) >= perAddress) return "address_limit";
    if (byForms.some((key) => sent.sentByForms + countOf(key) >= perAddress)) return "address_limit";
    if (sent.sentByTeam + countOf(teamId) >= perTeam) return "team_limit";
    for (const key of [addressOnList, address, teamId, ...byForms]) counts.set(key, countOf(key) + 1);
    return null;
  });
}
