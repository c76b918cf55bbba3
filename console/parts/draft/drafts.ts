import { useQuery } from "@tanstack/react-query";
import type { Client, DataOf } from "../../api.ts";
import { useData, useWorkspace } from "../../session.tsx";
import { type Kind, useCalls } from "../send/calls.ts";
import { blocksText, EMPTY } from "./blocks/text.ts";
import { isHtml, type Place } from "./content.ts";

type Drafts = ReturnType<typeof useCalls>["calls"]["drafts"];
export type Draft = DataOf<Drafts["retrieve"]["query"]> & {
  /** As `blocksText` writes them; "" in a mail of HTML. */
  blocks: string;
  preheader: string;
  /** Its blocks were saved before the brand was changed. */
  is_of_old_brand: boolean;
};

/** A draft, or a step of a sequence, as procedures name it. */
export interface Mail {
  type: Kind;
  id: string;
  step_id?: string;
}

/** The states in the words of the pages, and their colour. */
export const STATES = {
  DRAFT: ["Draft", "muted"],
  SCHEDULED: ["Scheduled", "accent"],
  SENDING: ["Sending", "accent"],
  PAUSED: ["Paused", "warn"],
  SENT: ["Sent", "good"],
  CANCELLED: ["Cancelled", "muted"],
  FAILED: ["Failed", "wrong"],
  ACTIVE: ["Running", "good"],
  STOPPED: ["Stopped", "muted"],
} as const;

/** The lists that a newsletter may go to, or the segments of a campaign. */
export const useTargets = (kind: Kind) =>
  useData<readonly { id: string; name: string }[]>(
    kind === "newsletter" ? ["lists", "all"] : ["segments"],
    ({ app: { audience } }) => (kind === "newsletter" ? audience.allLists.query({}) : audience.segments.query({})),
  );

/** The same; a list's name has its size once that is read. */
export function useSizedTargets(kind: Kind): readonly { id: string; name: string }[] {
  const { client, base } = useWorkspace();
  const { data: sizes } = useQuery({
    queryKey: [base, "lists", "sizes"],
    queryFn: async () => (await client.app.audience.lists.query({ query: {} })).data.lists,
    enabled: kind === "newsletter",
    // A save of the draft changes none.
    ...{ staleTime: "static", gcTime: 0, retry: false },
  });
  return useTargets(kind).map(({ id, name }) => {
    const of = sizes?.find((list) => list.id === id);
    return { id, name: of ? `${name} (${of.members.toLocaleString()}${of.has_more_members ? "+" : ""})` : name };
  });
}

/** The sending accounts of the team. */
export const useAccounts = () => useData(["accounts", "list"], ({ app }) => app.accounts.list.query({}));

/** Saves of one draft, by its editor and its choices: one after the other, so that each begins with what the one before left. */
export const IN_TURN = { scope: { id: "draft" } };

/** Where the team has one alone there is no choice. */
export const onlyOf = <One>(all: readonly One[]): One | undefined => (all.length === 1 ? all[0] : undefined);

/** The sender of a new draft: that of the brand, else the team's one account. */
export const usualSender = (
  { sender_name, sender_email }: DataOf<Client["app"]["team"]["brand"]["query"]>,
  accounts: readonly { email: string }[],
) => ({ from_name: sender_name, from_email: sender_email ?? onlyOf(accounts)?.email ?? null });

/** The facts of a draft that the API does not show, and the merge tags that it may use. */
export const useSettings = (type: Kind, id: string) =>
  useData([`${type}s`, id, "settings"], ({ app }) => app.content.settings.query({ query: { type, id } }));

/** An editor of blocks or of HTML. */
export interface BodyProps {
  value: string;
  onChange: (value: string) => void;
  /** Names of merge tags. */
  tags: readonly string[];
  readOnly: boolean;
  /** The place in the blocks that is to be selected. */
  shownPath?: readonly number[] | undefined;
}

/** Reads and writes of a draft's content. */
export function useContent(kind: Kind, id: string): Place & { read: () => Promise<{ data: Draft }> } {
  const { document, saveBlocks } = useWorkspace().client.app.content;
  const { calls, params } = useCalls(kind, id);
  const { drafts }: { drafts: Drafts } = calls;
  const one = { type: kind, id };
  const read = async (): Promise<{ data: Draft }> => {
    const { data } = await drafts.retrieve.query({ params });
    const { blocks, preheader, is_of_old_brand } = (await document.query({ query: one })).data;
    const text = blocks === null ? "" : blocksText(blocks);
    return { data: { ...data, blocks: text, preheader: preheader ?? "", is_of_old_brand } };
  };
  const write: Place["write"] = async (changes, content, options) => {
    const { blocks, preheader, ...fields } = changes;
    // A save of HTML ends the blocks.
    if (blocks === "") fields.body = content.body;
    const patch = Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, value || null]));
    let now: Partial<Draft> = {};
    if (Object.keys(patch).length > 0) {
      now = (await (drafts.update.mutate as Write)({ params, body: patch }, options)).data;
      if ("body" in fields) now = { ...now, blocks: "", preheader: "", is_of_old_brand: false };
    }
    // HTML has no preheader.
    if (isHtml(content) || (!blocks && preheader === undefined)) return now;
    const written = { blocks: JSON.parse(content.blocks || EMPTY), preheader: content.preheader || null };
    const began = now.updated_at === undefined ? options.context.began : { id, updated_at: now.updated_at };
    const { data } = await saveBlocks.mutate(
      { body: { ...one, ...written } },
      { context: { ...options.context, began } },
    );
    return { ...now, ...data, blocks: content.blocks || EMPTY };
  };
  const fields = ["name", "from_email", "from_name"];
  return { queryKey: [`${kind}s`, id], fields, isAutosaved: true, read, write };
}

type Write = (input: object, options: object) => Promise<{ data: Partial<Draft> }>;
