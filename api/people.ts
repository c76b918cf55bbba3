import { shownAddress as shownAddressOf } from "../domain/address.ts";
import { address, personName, shownAddress, shownNames, timestamps } from "./fields.ts";
import { instant } from "./rest/instant.ts";

const lastName = personName.meta({ examples: ["Lovelace"] });

/** The fields of a body that makes a subscriber or a contact. */
export const personBody = {
  email: address,
  first_name: personName.default(null),
  last_name: lastName.default(null),
};

/** The same where a field that is left out stays as it is. */
export const personPatch = {
  email: address.optional(),
  first_name: personName.optional(),
  last_name: lastName.optional(),
};

/** The fields of a subscriber or a contact in an answer, besides its kind and id. */
export const shownPerson = { email: shownAddress, ...shownNames, ...timestamps };

/** An entity of a subscriber or a contact. */
interface Person {
  id: string;
  email: string;
  emailSpelling?: string | null | undefined;
  firstName?: string | null | undefined;
  lastName?: string | null | undefined;
  createdAt: Date;
  updatedAt: Date;
}

/** The fields of a person as an answer shows them. */
export const presentPerson = (person: Person) => ({
  id: person.id,
  email: shownAddressOf(person),
  first_name: person.firstName ?? null,
  last_name: person.lastName ?? null,
  created_at: instant(person.createdAt),
  updated_at: instant(person.updatedAt),
});
