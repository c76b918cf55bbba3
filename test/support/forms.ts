import { hash } from "node:crypto";
import { transaction } from "../../db/transaction.ts";
import { createForm, type FormBody } from "../../domain/forms/forms.ts";
import { newChallenge } from "../../domain/forms/proof.ts";
import type { Vault } from "../../domain/secrets/crypto.ts";
import { api } from "./api.ts";
import { execute, type TestTeam, tenantOf } from "./factories.ts";

export interface MadeForm {
  id: string;
  listId: string;
  textId: string;
  /** Below the origin of the service. */
  path: string;
}

/** A form of a new list, with single opt-in unless given. */
export async function makeForm(team: TestTeam, body: Partial<FormBody> = {}, optin = "SINGLE"): Promise<MadeForm> {
  const { data } = (await api(team.keys.live).post("/lists", { name: "Readers", optin })).body;
  const form: FormBody = {
    ...{ name: "Form", list_id: data.id, fields: ["first_name"], consent_text: "You get our letter." },
    ...{ tracking_text: null, thank_you_url: null, sites: [], is_open: true, ...body },
  };
  const id = await transaction(team.em, (em) => createForm(em, team.vault, tenantOf(team), form));
  const [row] = await execute<{ reference: string; text_id: string }>("select * from forms where id = ?", id);
  return { id, listId: data.id, path: `/f/${row?.reference}`, textId: row?.text_id ?? "" };
}

/** As a browser solves it. */
export function solved({ challenge, salt, target, numbers }: ReturnType<typeof newChallenge>): string {
  for (let number = 0; number < numbers; number++) {
    if (hash("sha256", `${salt}${number}`) === target) return `${challenge}.${number}`;
  }
  throw new Error("no number fits");
}

/** A challenge from some time ago. */
export function agedChallenge(vault: Vault, formId: string, seconds: number): string {
  const [, salt = "", target = ""] = newChallenge(vault, formId).challenge.split(".");
  const time = (Date.now() - seconds * 1_000).toString(36);
  return [time, salt, target, vault.sign("form", formId, time, salt, target)].join(".");
}
