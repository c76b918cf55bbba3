import { InvalidArgumentError } from "commander";
import { RESOURCE_TYPES, type ResourceType } from "../../db/entities/send.ts";
import type { EntityManager } from "../../db/orm.ts";
import { attachList, BROADCASTS, detachList, updateDraft } from "../../domain/sends/drafts/drafts.ts";
import { type AppCommand, argument, type Commands, command, required } from "../command.ts";
import { oneOf, words } from "../options.ts";
import { inOwnersTenant } from "../session.ts";
import { WEEKDAYS } from "../weekdays.ts";

const ANY_DAY = "any";
const TRACKING = ["on", "off", "team"] as const;

function weekdays(text: string): number[] {
  if (text === ANY_DAY) return [];
  return words(text).map((word) => {
    const day = /^[1-7]$/.test(word) ? Number(word) : WEEKDAYS.indexOf(word.slice(0, 3).toLowerCase()) + 1;
    if (day === 0) throw new InvalidArgumentError(`"${word}" is no weekday.`);
    return day;
  });
}

const targeting = (
  description: string,
  verb: string,
  attached: boolean,
  change: (em: EntityManager, newsletterId: string, listId: string) => Promise<unknown>,
): AppCommand =>
  command(
    description,
    { newsletter: required("<id>", "the draft"), list: required("<id>", "the list") },
    async (session, { newsletter, list }) => {
      await inOwnersTenant(session, "newsletters", newsletter, (em) => change(em, newsletter, list));
      return { text: `${newsletter} ${verb} ${list}`, data: { newsletter, list, attached } };
    },
  );

/** A draft of a type is named by `--newsletter` or `--campaign`. */
const draftOf = (type: ResourceType) => ({ id: { ...required("<id>", "the draft"), name: type } });

const sendDays = (type: ResourceType): AppCommand =>
  command(
    "restrict the days on which a draft may start to go out, in the team's time zone",
    {
      ...draftOf(type),
      days: required("<days>", `comma-separated, of ${WEEKDAYS.join(", ")} or 1 to 7; ${ANY_DAY} lifts it`, weekdays),
    },
    async (session, { id, days }) => {
      const sendDays = [...new Set(days)].sort();
      await inOwnersTenant(session, `${type}s`, id, (em) => updateDraft(em, BROADCASTS[type], id, { sendDays }, null));
      const named = sendDays.map((day) => WEEKDAYS[day - 1]).join(", ");
      return { text: `${id} goes out on ${named || "any day"}`, data: { [type]: id, send_days: sendDays } };
    },
  );

const tracking = (type: ResourceType): AppCommand =>
  command(
    "count opens and clicks of a draft's mails, or not, whatever the team's setting is",
    {
      switch: argument(`${TRACKING.join(", ")}: as the team's setting is at the confirm`, oneOf(TRACKING)),
      ...draftOf(type),
    },
    async (session, { id, switch: state }) => {
      const tracking = state === "team" ? null : state === "on";
      await inOwnersTenant(session, `${type}s`, id, (em) => updateDraft(em, BROADCASTS[type], id, { tracking }, null));
      return {
        text: `Tracking of ${id} is ${state === "team" ? "left to the team's setting" : state}`,
        data: { [type]: id, tracking },
      };
    },
  );

/** Facts of drafts that the API cannot set: a newsletter's lists, send days, tracking. */
export const commands: Commands = {
  "list:attach": targeting("let a draft target a list", "targets", true, attachList),
  "list:detach": targeting("let a draft target a list no more", "no longer targets", false, detachList),
  ...Object.fromEntries(RESOURCE_TYPES.map((type) => [`${type}:send-days`, sendDays(type)])),
  ...Object.fromEntries(RESOURCE_TYPES.map((type) => [`${type}:tracking`, tracking(type)])),
};
