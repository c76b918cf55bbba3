import { idOfSuffix, suffixOfId } from "../ids.ts";
import { equalConstantTime, type Vault } from "../secrets/crypto.ts";
import { lastingSignature } from "../secrets/reference.ts";
import { IMAGE_TYPES, type ImageEnding } from "./clean.ts";

/*
 * {team}/{id}.{ending} is the file of an image in the store, /i/{team}.{id}.{signature}.{ending} the path by which readers of
 * mails get it. The path alone leads to the file, without the database.
 */

export const imageFile = (teamId: string, imageId: string, ending: ImageEnding): string =>
  `${suffixOfId("team", teamId)}/${suffixOfId("image", imageId)}.${ending}`;

export function imageUrl(vault: Vault, publicUrl: string, file: string): string {
  const [team, id, ending] = file.split(/[/.]/);
  return `${publicUrl}/i/${team}.${id}.${lastingSignature(vault, "image", file)}.${ending}`;
}

const NAME = /^([0-9a-z]{26})\.([0-9a-z]{26})\.([\w-]{22})\.(png|jpg|gif|webp)$/;

export interface NamedImage {
  file: string;
  /** Of the image: its content never changes. */
  id: string;
  type: string;
}

/** Undefined for a name that this service did not sign. */
export function readImageName(vault: Vault, name: string): NamedImage | undefined {
  const [, team = "", suffix = "", signature = "", ending = ""] = NAME.exec(name) ?? [];
  const file = `${team}/${suffix}.${ending}`;
  if (!equalConstantTime(signature, lastingSignature(vault, "image", file))) return undefined;
  return { file, id: idOfSuffix("image", suffix), type: IMAGE_TYPES[ending as ImageEnding] };
}
